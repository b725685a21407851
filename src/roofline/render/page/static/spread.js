/** How time spreads: steps as bars by cause, then devices and hosts, with those that are slower than the others marked. */

import { CAUSES, chosen } from "#page/chosen.js";
import { button, fill, h, named } from "#page/dom.js";
import { ownMachine, select } from "#page/rows.js";
import { stack, stackLegend, VISIBLE } from "#page/stack.js";
import { show } from "#page/units.js";

const [MOST_STEPS, MOST_DEVICES] = [200, 64]; // bars; a table has the rest
const WAITING = new Set(["idle", "communication"]); // what a device does while another one works

/** @returns {{root, update(state, derived)}} `stragglers` are what Python says of devices and hosts that are slower than the others */
export function spread({ report, stragglers, store }) {
  const root = h("section", { class: "spread", "aria-label": "Steps and devices" });
  let drawn = null;
  return {
    root,
    update: (state, { program, machine, theme }) => {
      const key = JSON.stringify([state.feeds, state.step, state.device, state.host, theme.name]);
      if (drawn?.key === key && drawn.machine === machine) return;
      drawn = { key, machine };
      if (machine !== ownMachine(report)) {
        fill(root, h("p", { class: "quiet", text: `Steps and devices were measured on ${report.machine.title || report.machine.name}.` }));
        return;
      }
      fill(root, stepBars(report, state, program, machine, theme, store), deviceBars(report, stragglers, state, program, machine, theme, store));
    },
  };
}

function stepBars(report, state, program, machine, theme, store) {
  const steps = program.filter((row) => row.scope === "step" && row.time_s);
  if (steps.length < 2) return null;
  const bars = steps.slice(0, MOST_STEPS).map((row) => ({
    ...chosen(report, { ...state, step: row.step, device: null, host: null }, { all: [], program, machine }),
    title: row.name, key: row.step, on: state.step === row.step,
  }));
  const more = steps.length > MOST_STEPS ? `the first ${MOST_STEPS} of ${steps.length} steps` : `${steps.length} steps`;
  return list("Steps by cause", more, bars, theme, "step-bars", ({ key, on }) => store.set({ step: on ? null : key }));
}

function deviceBars(report, stragglers, state, program, machine, theme, store) {
  const devices = report.input.devices ?? [];
  if (devices.length < 2) return null;
  const slow = { devices: new Map(stragglers.devices), hosts: new Map(stragglers.hosts) };
  const timed = new Set((report.by_device ?? []).map((share) => share.device));
  const of = (patch) => {
    const part = { ...state, device: null, host: null, ...patch };
    return chosen(report, part, { all: select(report, part), program, machine });
  };
  const bars = working(devices.filter(({ id }) => timed.has(id)).slice(0, MOST_DEVICES).map(({ id, name, host }) => ({
    ...of({ device: id }), title: `${id}: ${name}${host ? ` on ${host}` : ""}`, key: id, on: state.device === id, slower: slow.devices.get(String(id)),
  })));
  const hosts = [...new Set(devices.map((one) => one.host).filter(Boolean))];
  const ofHosts = hosts.length > 1 ? working(hosts.slice(0, MOST_DEVICES).map((host) => ({ ...of({ host }), title: host, key: host, on: state.host === host, slower: slow.hosts.get(host) }))) : [];
  return [
    list("Devices by cause", told(bars, "devices"), bars, theme, "device-bars", ({ key, on }) => store.set({ device: on ? null : key })),
    ofHosts.length > 0 && list("Hosts by cause", told(ofHosts, "hosts"), ofHosts, theme, "host-bars", ({ key, on }) => store.set({ host: on ? null : key })),
  ];
}

/** The bars with the time that each works, in which it does not wait for another. */
function working(bars) {
  return bars.map((bar) => ({ ...bar, works: bar.parts.reduce((sum, { cause, seconds }) => (WAITING.has(cause) ? sum : sum + seconds), 0) }));
}

function told(bars, what) {
  const works = bars.map((bar) => bar.works);
  const slow = bars.filter((bar) => bar.slower);
  const range = `work from ${show(Math.min(...works), "s", 3)} to ${show(Math.max(...works), "s", 3)}`;
  return slow.length ? `${range}; ${slow.length} of ${bars.length} ${what} slower than the others, which wait` : `${range}; no stragglers`;
}

function list(heading, remark, bars, theme, testid, choose) {
  const whole = Math.max(...bars.map((bar) => bar.time_s ?? bar.floor_s ?? 0));
  // The same order in every bar, so that bars compare; what has no room in any of them is left out.
  const visible = new Set(bars.flatMap(({ parts }) => parts.filter(({ seconds }) => seconds >= VISIBLE * whole).map(({ cause }) => cause)));
  const causes = CAUSES.filter((cause) => visible.has(cause)).map((cause) => ({ cause, seconds: null }));
  return h("div", { class: "spread-list" },
    h("div", { class: "table-head" }, h("h3", { text: heading }), h("p", { class: "quiet", text: remark })),
    h("ol", { class: "spread-bars", "data-testid": testid }, bars.map((bar) => {
      const parts = bar.parts.toSorted((one, other) => CAUSES.indexOf(one.cause) - CAUSES.indexOf(other.cause));
      const row = stack({ parts, whole, theme });
      return h("li", {},
        button({ class: `spread-row ${bar.slower ? "slow" : ""}`, "aria-pressed": String(Boolean(bar.on)), onclick: () => choose(bar) },
          h("span", { class: "bar-name" }, named(bar.title, { most: 48 })),
          row,
          h("span", { class: "bar-figure", text: show(bar.time_s ?? bar.floor_s, "s", 4) }),
          h("span", { class: "bar-remark quiet", text: bar.slower ? bar.slower : bar.works === undefined ? "" : `works ${show(bar.works, "s", 3)}` }),
        ),
      );
    })),
    stackLegend({ parts: causes, whole, theme }),
  );
}
