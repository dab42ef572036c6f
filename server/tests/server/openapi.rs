//! The OpenAPI document: it is complete, it is that of the routes, and it is served without a key. That responses have
//! the declared form is checked by the client of all tests.

use crate::support::{Client, DOCUMENT, Response, Server};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// The operations of the document: method, path and operation.
fn operations() -> impl Iterator<Item = (&'static str, &'static String, &'static Value)> {
    let paths = DOCUMENT["paths"].as_object().unwrap().iter();
    paths.flat_map(|(path, item)| {
        METHODS.into_iter().filter_map(move |method| Some((method, path, item.get(method)?)))
    })
}

/// A request that fits a path, for things that do not exist.
fn request(client: &Client, method: &str, path: &str) -> Response {
    let id = if path.contains("agents/") { "none" } else { "00000000-0000-4000-8000-000000000000" };
    let path = path.replace("{id}", id).replace("{name}", "none").replace("{version}", "1");
    let path = path.replace("{path}", "a/b").replace("{permission}", "1");
    client.request(&method.to_uppercase(), &path, &[], b"")
}

/// Whether the response is that of an unknown route.
fn is_unknown_route(response: &Response) -> bool {
    response.status == 404
        && response.body["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("Route ") && text.ends_with(" not found"))
}

#[test]
fn committed_document_is_that_of_the_server() {
    let output = Command::new(env!("CARGO_BIN_EXE_saggar-server")).arg("--print-openapi").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let committed = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json")).unwrap();
    // Without assert_eq: the documents are long.
    assert!(
        output.stdout == committed,
        "server/openapi.json is not the document of the server; update it: \
         cargo run -p saggar-server -- --print-openapi > server/openapi.json"
    );
}

#[test]
fn document_is_served_without_a_key() {
    let server = Server::start();
    let client = server.client_with(None);
    for path in ["/docs/json", "/openapi.json"] {
        let response = client.get(path);
        assert_eq!(response.headers["content-type"], "application/json");
        assert!(response.expect(200) == *DOCUMENT, "{path}");
    }
    let (status, headers, page) = client.download("/docs");
    assert_eq!((status, headers["content-type"].to_str().unwrap()), (200, "text/html; charset=utf-8"));
    assert!(headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
    let page = String::from_utf8(page).unwrap();
    for (method, path, operation) in operations() {
        assert!(page.contains(&format!("<h3>{} {path}</h3>", method.to_uppercase())), "{method} {path}");
        assert!(page.contains(&format!("<code>{}</code>", operation["operationId"].as_str().unwrap())));
    }
    for absent in ["<script", "<style", "<link", "<img", "://", "javascript:"] {
        assert!(!page.contains(absent), "the page contains {absent}");
    }
}

#[test]
fn document_has_the_routes_of_the_server() {
    let server = Server::start_with(&[], &[("ASH_INTERNAL_SECRET", "s3cret")]);
    let (client, internal) = (server.client(), server.client_with(Some("s3cret")));
    let mut methods: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (method, path, _) in operations() {
        methods.entry(path).or_default().insert(method);
    }
    assert!(methods.len() > 40, "{methods:?}");
    for (path, declared) in methods {
        let client = if path.starts_with("/api/internal/") { &internal } else { &client };
        for method in METHODS {
            let response = request(client, method, path);
            assert_eq!(
                is_unknown_route(&response),
                !declared.contains(method),
                "{method} {path}: {response:?}"
            );
        }
    }
    // Routes are added only together with their operations.
    for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api")).unwrap() {
        let file = file.unwrap().path();
        // Static files, which are no operations.
        if file.ends_with("page.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            !text.contains(".route(") && !text.contains(".nest("),
            "{} has a route of its own",
            file.display()
        );
    }
}

#[test]
fn document_says_which_operations_need_a_key() {
    let server = Server::start_with(&[], &[("ASH_INTERNAL_SECRET", "s3cret")]);
    let client = server.client_with(None);
    let mut open = Vec::new();
    for (method, path, operation) in operations() {
        let is_open = operation["security"] == json!([{}]);
        assert_eq!(request(&client, method, path).status != 401, is_open, "{method} {path}");
        open.extend(is_open.then_some(path.as_str()));
    }
    assert_eq!(open, ["/docs", "/docs/json", "/health", "/live", "/openapi.json"]);
}

#[test]
fn operations_are_complete() {
    let mut ids = BTreeSet::new();
    let tags: Vec<&Value> = DOCUMENT["tags"].as_array().unwrap().iter().map(|tag| &tag["name"]).collect();
    for (method, path, operation) in operations() {
        let at = format!("{method} {path}");
        let id = operation["operationId"].as_str().unwrap();
        assert!(id.starts_with(|first: char| first.is_ascii_lowercase()), "{at}: {id}");
        assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{at}: {id}");
        assert!(ids.insert(id), "{at}: {id} is the id of two operations");
        let summary = operation["summary"].as_str().unwrap();
        assert!(summary.ends_with('.') && !summary.contains('\n'), "{at}: {summary:?}");
        assert!(tags.contains(&&operation["tags"][0]), "{at}: {}", operation["tags"]);
        let declared = path.matches('{').count();
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        assert_eq!(parameters.filter(|parameter| parameter["in"] == "path").count(), declared, "{at}");
        let responses = operation["responses"].as_object().unwrap();
        let successes = responses.iter().filter(|(status, _)| status.starts_with('2'));
        assert!(successes.clone().count() >= 1, "{at}");
        for (status, response) in successes {
            assert!(!response["content"].as_object().unwrap().is_empty(), "{at} {status}");
        }
        let mut expected = vec!["400", "429"];
        if operation["security"].is_null() {
            expected.extend(["401", "403", "500", "503"]);
        }
        if path.contains("/{") {
            expected.push("404");
        }
        if !operation["requestBody"].is_null() {
            expected.extend(["408", "413"]);
        }
        for status in expected {
            let schema = &responses.get(status).unwrap_or_else(|| panic!("{at} lacks {status}"))["content"];
            let schema = &schema["application/json"]["schema"]["$ref"];
            assert_eq!(schema, "#/components/schemas/Error", "{at} {status}");
        }
    }
}

#[test]
fn every_schema_is_used_and_every_reference_leads_to_one() {
    fn collect<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|field| collect(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            _ => {}
        }
    }
    let mut references = BTreeSet::new();
    collect(&DOCUMENT, &mut references);
    let used: BTreeSet<&str> =
        references.iter().map(|path| path.strip_prefix("#/components/schemas/").unwrap()).collect();
    let declared: BTreeSet<&str> =
        DOCUMENT["components"]["schemas"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(used, declared);
}

#[test]
fn bounds_of_parameters_are_those_of_the_server() {
    let server = Server::start();
    let client = server.client();
    let mut bounds = 0;
    for (method, path, operation) in operations() {
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let (name, schema) = (parameter["name"].as_str().unwrap(), &parameter["schema"]);
            for (keyword, step) in [("minimum", -1), ("maximum", 1)] {
                let Some(bound) = schema[keyword].as_i64().filter(|_| parameter["in"] == "query") else {
                    continue;
                };
                bounds += 1;
                for (value, is_valid) in [(bound, true), (bound + step, false)] {
                    let target = format!("{path}?{name}={value}");
                    assert_eq!(request(&client, method, &target).status != 400, is_valid, "{target}");
                }
            }
        }
    }
    assert!(bounds >= 10, "{bounds}");
}
