/** Device information: every ceiling with its origin and other sources' figures, and what was read. */

import { fill, h, named } from "#page/dom.js";
import { factList } from "#page/facts.js";
import { resource, title as resourceTitle } from "#page/law.js";
import { percent, show } from "#page/units.js";
import { VOCABULARY } from "#page/vocabulary.js";

/** @returns {{root, update(state, derived)}} */
export function device({ report }) {
  const root = h("div", { class: "device", "data-testid": "device-information" });
  let drawn = null;
  return {
    root,
    update: (state, { machine }) => {
      if (drawn === machine) return;
      drawn = machine;
      fill(root,
        h("h3", { text: machine.title || machine.name, "data-testid": "machine-name" }),
        factList(heading(machine, report), "machine"),
        h("h4", { text: "Ceilings" }),
        h("ul", { class: "ceilings", "data-testid": "ceilings" }, machine.ceilings.map(ceiling)),
        ridges(machine),
        (machine.capacities ?? []).length > 0 && [
          h("h4", { text: "Capacities" }),
          factList(machine.capacities.map((one) => [resourceTitle(one.level), show(one.bytes, "B"), one.provenance]), "capacities"),
        ],
        (machine.limits ?? []).length > 0 && [
          h("h4", { text: "Limits" }),
          factList(machine.limits.map((one) => [one.name, percent(one.fraction), `of ${resourceTitle(one.resource)}`]), "limits"),
        ],
        h("h4", { text: "Input" }),
        h("dl", { class: "words" }, input(report.input)),
      );
    },
  };
}

function heading(machine, report) {
  const rows = [["Name", machine.name, machine.scope === "device" ? "one framework device" : "the whole chip"]];
  if (machine.launch_latency_s) rows.push(["Launch latency", show(machine.launch_latency_s, "s"), ""]);
  if ((machine.devices_per_chip ?? 1) > 1) rows.push(["Devices per chip", String(machine.devices_per_chip), ""]);
  if (report.input.devices?.length) rows.push([
    "Devices",
    String(report.input.devices.length),
    [...new Set(report.input.devices.map((one) => one.name))].join(", "),
  ]);
  return rows;
}

/** The ridge point of each memory level, for the peak that a chart draws. */
function ridges(machine) {
  const peak = machine.bestMatrix?.resource;
  const levels = machine.ceilings.filter((one) => resource(one.resource).isMemory).map((one) => one.resource);
  if (!peak || !levels.length) return null;
  return [
    h("h4", { text: `Ridge points of ${resourceTitle(peak)}` }),
    h("div", { "data-testid": "ridges" }, factList(levels.map((level) => [resourceTitle(level), show(machine.ridge(peak, level), "FLOP/B"), ""]), "ridge points")),
  ];
}

function ceiling(one) {
  const { per } = resource(one.resource); // the catalogue in a page leaves out what the name says
  const remarks = [
    one.factor && one.factor !== 1 ? `scaled to ${percent(one.factor)}` : null,
    one.peak ? `vendor peak ${show(one.peak, per)}` : null,
    (one.count ?? 1) > 1 ? `${one.count} links` : null,
    one.note || null,
  ].filter(Boolean);
  return h("li", { class: "ceiling", "data-resource": one.resource },
    h("span", { class: "ceiling-name", text: resourceTitle(one.resource) }),
    h("span", { class: "figure", text: show(one.rate, per) }),
    h("span", {
      class: `tag ${one.provenance === "measured" || one.provenance === "profile" ? "strong" : ""}`,
      text: one.provenance || "unknown", title: VOCABULARY.provenances[one.provenance] ?? "",
    }),
    remarks.length > 0 && h("span", { class: "quiet remarks", text: remarks.join(" · ") }),
    one.citation && h("span", { class: "quiet citation", text: one.citation }),
    (one.others ?? []).map((other) => h("span", {
      class: "quiet other",
      text: `other figure ${show(other.rate, per)}${other.citation ? `: ${other.citation}` : ""}${other.note ? ` (${other.note})` : ""}`,
    })),
  );
}

function input({ format, files, hosts, devices }) {
  const rows = [
    ["Format", [format]],
    ["Files", files ?? []],
    ["Hosts", hosts ?? []],
    ["Devices", (devices ?? []).map(({ id, name, host }) => `${id}: ${name}${host ? ` on ${host}` : ""}`)],
  ];
  return rows.filter(([, values]) => values.length).map(([word, values]) => [
    h("dt", { text: word }),
    values.map((value) => h("dd", {}, named(value, { most: 120 }))),
  ]);
}
