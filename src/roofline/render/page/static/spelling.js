/** Misspelt names, as `errors.did_you_mean` answers them. */

const [MOST, LIKENESS] = [3, 0.6]; // how many names are suggested, and how alike they are to what was written

/** The tail of an error message about a misspelt name: `; did you mean 'h100-sxm'?`, or nothing. */
export function didYouMean(word, known) {
  const alike = known
    .map((name) => ({ name, likeness: (2 * common(name, word)) / (name.length + word.length) }))
    .filter(({ likeness }) => likeness >= LIKENESS)
    .sort((one, other) => other.likeness - one.likeness || (one.name < other.name ? 1 : -1))
    .slice(0, MOST)
    .map(({ name }) => `'${name}'`);
  if (!alike.length) return "";
  const last = alike.pop();
  return `; did you mean ${alike.length ? `${alike.join(", ")} or ` : ""}${last}?`;
}

/** How many letters two words share in the same order: those of their longest common part, and so on left and right of it. */
function common(one, other) {
  let [size, start, place] = [0, 0, 0];
  for (let at = 0; at < one.length; at += 1) {
    for (let there = 0; there < other.length; there += 1) {
      let length = 0;
      while (at + length < one.length && one[at + length] === other[there + length]) length += 1;
      if (length > size) [size, start, place] = [length, at, there];
    }
  }
  if (!size) return 0;
  return common(one.slice(0, start), other.slice(0, place)) + size + common(one.slice(start + size), other.slice(place + size));
}
