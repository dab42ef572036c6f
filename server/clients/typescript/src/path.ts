/** Values in the path of a request. */

/** Encodes a value that is one segment of a path. */
export function segment(name: string, value: string): string {
  return encodeURIComponent(check(name, value));
}

/** Encodes a path of a file, whose slashes stay. */
export function filePath(name: string, value: string): string {
  check(name, value);
  return value.split("/").map((part) => encodeURIComponent(check(name, part, value))).join("/");
}

/** A URL without such a segment is that of another operation: `..` leads from a file to its session. */
function check(name: string, part: string, whole = part): string {
  if (part === "" || part === "." || part === "..") {
    throw new TypeError(`${name} must have no empty segment and no segment "." or "..": ${JSON.stringify(whole)}`);
  }
  return part;
}
