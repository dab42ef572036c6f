// Returns the texts whose contrast with their background is below the 4.5 of WCAG 2.2, level AA.
const channels = (color) => color.match(/[\d.]+/g).map(Number);
const linear = (value) => (value <= 10.31475 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4);
const luminance = ([red, green, blue]) => 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
const background = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const found = channels(getComputedStyle(at).backgroundColor);
    if (found[3] === undefined || found[3] === 1) return found;
  }
  return [255, 255, 255];
};
const low = [];
for (const element of document.querySelectorAll("body *")) {
  const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join("");
  if (!text || !element.checkVisibility() || element.closest(":disabled")) continue;
  const [a, b] = [luminance(channels(getComputedStyle(element).color)), luminance(background(element))];
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < 4.5) low.push(`${text}: ${contrast.toFixed(2)}`);
}
return low;
