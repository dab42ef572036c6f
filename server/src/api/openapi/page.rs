//! The document as a page: HTML without scripts, styles or links to other sites.

use serde_json::{Map, Value};
use std::fmt::Write;
use utoipa::openapi::OpenApi;

const METHODS: [&str; 4] = ["get", "post", "patch", "delete"];

/// Renders the page.
pub(super) fn render(document: &OpenApi) -> String {
    let document = serde_json::to_value(document).unwrap_or_default();
    let mut body =
        format!("<h1>{} {}</h1>\n", text(&document["info"]["title"]), text(&document["info"]["version"]));
    body += "<p>This page is generated from the <a href=\"openapi.json\">OpenAPI document</a>.</p>\n";
    for tag in list(&document["tags"]) {
        section(&mut body, &document, tag);
    }
    body += "<h2>Schemas</h2>\n";
    for (name, schema) in fields(&document["components"]["schemas"]) {
        let json = escape(&serde_json::to_string_pretty(schema).unwrap_or_default());
        body += &format!("<h3 id=\"{0}\">{0}</h3>\n<pre>{json}</pre>\n", escape(name));
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{}</title>\n</head>\n\
         <body>\n{body}</body>\n</html>\n",
        text(&document["info"]["title"])
    )
}

/// Writes the operations with a tag.
fn section(body: &mut String, document: &Value, tag: &Value) {
    // Writing to a string cannot fail.
    let _ = writeln!(body, "<h2>{}</h2>\n<p>{}.</p>", text(&tag["name"]), text(&tag["description"]));
    for (path, item) in fields(&document["paths"]) {
        for method in METHODS {
            let operation = &item[method];
            if operation["tags"][0] == tag["name"] {
                let _ = writeln!(body, "<h3>{} {}</h3>", method.to_uppercase(), escape(path));
                write_operation(body, operation);
            }
        }
    }
}

fn write_operation(body: &mut String, operation: &Value) {
    let _ = writeln!(
        body,
        "<p>{} <code>{}</code></p>",
        text(&operation["summary"]),
        text(&operation["operationId"])
    );
    if operation["description"].is_string() {
        let _ = writeln!(body, "<p>{}</p>", text(&operation["description"]));
    }
    *body += "<table>\n<tr><th>Part</th><th>Type</th><th>Description</th></tr>\n";
    for parameter in list(&operation["parameters"]) {
        let part = format!("{} <code>{}</code>", text(&parameter["in"]), text(&parameter["name"]));
        write_row(body, &part, &schema_name(&parameter["schema"]), &text(&parameter["description"]));
    }
    for (_, content) in fields(&operation["requestBody"]["content"]) {
        write_row(body, "body", &schema_name(&content["schema"]), "");
    }
    for (status, response) in fields(&operation["responses"]) {
        let content = fields(&response["content"]);
        let types = content.map(|(media_type, content)| {
            format!("{}: {}", escape(media_type), schema_name(&content["schema"]))
        });
        let types = types.collect::<Vec<_>>().join("<br>");
        write_row(body, &format!("status {}", escape(status)), &types, &text(&response["description"]));
    }
    *body += "</table>\n";
}

fn write_row(body: &mut String, part: &str, types: &str, description: &str) {
    let _ = writeln!(body, "<tr><td>{part}</td><td>{types}</td><td>{description}</td></tr>");
}

/// The name of a schema with a link to it, or its type.
fn schema_name(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("<a href=\"#{0}\">{0}</a>", escape(name));
    }
    match &schema["type"] {
        Value::String(name) => escape(name),
        Value::Array(names) => {
            names.iter().filter(|name| *name != "null").map(text).collect::<Vec<_>>().join(" or ")
        }
        _ => "any".into(),
    }
}

/// The text of a JSON string, escaped.
fn text(value: &Value) -> String {
    escape(value.as_str().unwrap_or_default())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}
