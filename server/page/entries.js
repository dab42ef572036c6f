// The entries of a conversation: what a client or the agent wrote, tool calls and the ends of turns.

import { element, textBlock, textElement, timeElement } from "./dom.js";
import { contentText, count, formatCost, pretty } from "./text.js";

function entry(kind, author, ...content) {
  return element("li", { class: `entry ${kind}` }, element("p", { class: "author" }, author), ...content);
}

/** A message of a client, as a row of the API. */
export function userEntry(row) {
  const author = element("span", {}, "User ", timeElement(row.createdAt));
  return entry("user", author, textElement("div", { class: "text" }, contentText(parse(row.content).content)));
}

/** The entries of a message of the agent: one for each block, or for a result. `onTool` receives each tool call. */
export function agentEntries(message, onTool) {
  if (message.type === "result") return [turnEndEntry(message)];
  const content = message.message?.content;
  const blocks = Array.isArray(content) ? content : [{ type: "text", text: contentText(content) }];
  const author = message.parent_tool_use_id ? "Subagent" : "Agent";
  return blocks.map((block) => blockEntry(block, author, onTool));
}

function blockEntry(block, author, onTool) {
  switch (block?.type) {
    case "text": return textEntry(author, String(block.text ?? ""));
    case "thinking": return thinkingEntry(author, String(block.thinking ?? ""));
    case "tool_use": {
      const tool = new ToolEntry(author, block);
      onTool(String(block.id), tool);
      return tool.element;
    }
    default: return entry("other", author, folded(`Block ${block?.type ?? ""}`, textBlock("Content", pretty(block))));
  }
}

/** A text of the agent, also while it is being written. */
export function textEntry(author, text) {
  return entry("agent", author, textElement("div", { class: "text" }, text));
}

function thinkingEntry(author, text) {
  return entry("thinking", author, folded("Thinking", textElement("div", { class: "text" }, text)));
}

function folded(summary, ...content) {
  return element("details", {}, textElement("summary", {}, summary), ...content);
}

/** A tool call, folded, with its input and later its result. */
export class ToolEntry {
  constructor(author, { name, input }) {
    this.state = element("span", { class: "state" }, "no result yet");
    this.result = element("div");
    const summary = element("summary", {}, textElement("strong", {}, name, { strict: true }), " ",
      textElement("code", { class: "brief" }, brief(input)), " ", this.state);
    const details = element("details", {}, summary,
      element("p", { class: "label" }, "Input"), textBlock("Input", toolInput(input)), this.result);
    this.element = entry("tool", author, details);
  }

  /** Shows the result. `isError` is null if that is not known. */
  finish(content, isError) {
    const text = contentText(content);
    this.state.textContent = isError ? "failed" : isError === false ? "succeeded" : "ended";
    this.state.classList.toggle("failed", isError === true);
    this.result.replaceChildren(
      element("p", { class: "label" }, `Result, ${count(text ? text.split("\n").length : 0, "line")}`),
      textBlock("Result", text || "(empty)"));
  }
}

/** The input in the summary: the field that most tools are recognised by. */
function brief(input) {
  const text = input?.command ?? input?.file_path ?? input?.path ?? input?.pattern ?? input?.url ?? "";
  const line = contentText(text).split("\n", 1)[0];
  return line.length > 80 ? `${line.slice(0, 80)}…` : line;
}

function toolInput(input) {
  const names = Object.keys(input ?? {});
  return names.length === 1 && typeof input[names[0]] === "string" ? input[names[0]] : pretty(input);
}

function turnEndEntry(result) {
  const facts = [result.is_error ? `Turn failed (${result.subtype ?? "error"})` : "Turn ended"];
  if (typeof result.duration_ms === "number") facts.push(`${(result.duration_ms / 1000).toFixed(1)} s`);
  if (typeof result.num_turns === "number") facts.push(count(result.num_turns, "step"));
  if (result.total_cost_usd > 0) facts.push(`${formatCost(result.total_cost_usd)} since the agent started`);
  const errors = Array.isArray(result.errors) ? result.errors.map(pretty) : [];
  if (result.is_error && typeof result.result === "string") errors.push(result.result);
  const text = [facts.join(" · "), ...errors].join("\n");
  return textElement("li", { class: `entry turn-end${result.is_error ? " failed" : ""}` }, text);
}

/** A remark of the server, such as an error. */
export function noticeEntry(kind, text) {
  return textElement("li", { class: `entry notice ${kind}` }, text);
}

/** Parses a message that the server has stored or sent. Invalid text yields an empty object. */
export function parse(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}
