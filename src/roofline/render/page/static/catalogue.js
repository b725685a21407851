/** The chips that a page can show its work on. */

/** The machines of the catalogue that Python packed, each in the shape of a report's `machine`. */
export function chipsOf(packed) {
  if (!packed) return [];
  const ceiling = ([resource, rate, source]) => {
    const [provenance, citation] = packed.sources[source];
    return { resource, rate, provenance, citation };
  };
  return packed.chips.map((chip) => ({ ...chip, ceilings: chip.ceilings.map(ceiling) }));
}
