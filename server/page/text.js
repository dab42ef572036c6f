// Text: characters that would not be visible are replaced, and values are formatted for reading.

// Characters that are invisible or change the order of others: controls other than tab and line feed, formatting
// characters such as bidirectional overrides, lone surrogates, private use, and separators other than the space.
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]|(?! )\p{Zs}/gu;
// These make up words of some languages and emoji. They are harmless in prose, and not in the subject of a question.
const JOINERS = new Set(["\u200c", "\u200d", "\ufe0e", "\ufe0f", "\u00a0", "\u202f"]);

/** Splits a text into strings, and `{ escape }` for each character that would not be visible. */
export function visibleParts(text, { strict = false } = {}) {
  const parts = [];
  let end = 0;
  for (const { 0: character, index } of text.matchAll(INVISIBLE)) {
    if (character === "\n" || character === "\t" || (!strict && JOINERS.has(character))) continue;
    if (index > end) parts.push(text.slice(end, index));
    parts.push({ escape: `\\u{${character.codePointAt(0).toString(16)}}` });
    end = index + character.length;
  }
  if (end < text.length) parts.push(text.slice(end));
  return parts;
}

/** A text for a label, with escapes for all characters that would not be visible. */
export function visibleText(text) {
  return visibleParts(text, { strict: true }).map((part) => part.escape ?? part).join("");
}

/** Formats any value of JSON: a string as it is, anything else as indented JSON. */
export function pretty(value) {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** The text of a content of the API: a string, or a list of blocks of which those of other types are named. */
export function contentText(content) {
  if (!Array.isArray(content)) return pretty(content);
  return content.map((block) => block?.type === "text" ? block.text : block?.text ?? `[${block?.type ?? "block"}]`)
    .join("\n");
}

/** "1 line", "3 lines". */
export function count(number, noun) {
  return `${formatNumber(number)} ${noun}${number === 1 ? "" : "s"}`;
}

export function formatNumber(number) {
  return Number(number).toLocaleString("en");
}

/** A number of bytes, rounded: "0 B", "1.5 kB". */
export function formatBytes(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(units.length - 1, bytes > 0 ? Math.floor(Math.log10(bytes) / 3) : 0);
  const value = bytes / 1000 ** power;
  return `${power > 0 && value < 10 ? value.toFixed(1) : Math.floor(value)} ${units[power]}`;
}

export function formatCost(dollars) {
  return `$${Number(dollars).toFixed(dollars > 0 && dollars < 0.1 ? 4 : 2)}`;
}

/** The usage of a session in words: its sums, and what its sandbox uses. */
export function useText({ stats, sandbox }) {
  const input = stats.totalInputTokens + stats.totalCacheCreationTokens + stats.totalCacheReadTokens;
  return [
    `${formatNumber(input)} tokens in, ${formatNumber(stats.totalOutputTokens)} out`,
    count(stats.totalToolCalls, "tool call"),
    formatCost(stats.totalCostUsd),
    ...limitedUse(sandbox?.memory, formatBytes, "memory"),
    ...limitedUse(sandbox?.pids, formatNumber, "processes"),
  ].join(" · ");
}

/** "1.3 MB of 2.1 GB memory"; nothing of what is not counted. */
function limitedUse(use, format, name) {
  if (!use) return [];
  return [`${format(use.current)}${use.max === null ? "" : ` of ${format(use.max)}`} ${name}`];
}

/** A time in the zone of the browser; the date only if it is not today. */
export function formatTime(iso) {
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return String(iso ?? "");
  const clock = time.toLocaleTimeString("en-GB");
  return time.toDateString() === new Date().toDateString() ? clock : `${localDate(time)} ${clock}`;
}

function localDate(time) {
  const two = (number) => String(number).padStart(2, "0");
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
}
