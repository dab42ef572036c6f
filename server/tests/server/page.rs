//! The files of the web page, as any client receives them.

use crate::support::{Client, Server};
use serde_json::json;
use std::collections::BTreeSet;

/// Gets a file without a key, checks the headers that all files have, and returns its text and media type.
fn file(client: &Client, path: &str) -> (String, String) {
    let (status, headers, bytes) = client.download(path);
    assert_eq!(status, 200, "{path}");
    let header =
        |name: &str| headers.get(name).unwrap_or_else(|| panic!("{path}: no {name}")).to_str().unwrap();
    assert_eq!(
        header("content-security-policy"),
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'"
    );
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cache-control", "no-cache"),
    ] {
        assert_eq!(header(name), value, "{path}: {name}");
    }
    (String::from_utf8(bytes).unwrap(), header("content-type").to_owned())
}

/// The values of `src` and `href`, and the modules that a script imports.
fn references(text: &str) -> impl Iterator<Item = &str> {
    let values = |before: &'static str| text.split(before).skip(1).filter_map(|rest| rest.split('"').next());
    values("src=\"").chain(values("href=\"")).chain(values(" from \"")).chain(values("import \""))
}

#[test]
fn page_and_all_files_that_it_references_are_served_without_key() {
    let server = Server::start();
    let client = server.client_with(None);
    let mut known = BTreeSet::new();
    let mut unread = vec![String::new()];
    while let Some(name) = unread.pop() {
        if !known.insert(name.clone()) {
            continue;
        }
        let (text, media_type) = file(&client, &format!("/dashboard/{name}"));
        let expected = match name.rsplit_once('.') {
            Some((_, "js")) => "text/javascript; charset=utf-8",
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "svg")) => "image/svg+xml",
            _ => "text/html; charset=utf-8",
        };
        assert_eq!(media_type, expected, "{name}");
        assert!(!text.contains(&server.key()) && !text.contains("https://"), "{name}");
        let found = references(&text).filter(|found| !found.starts_with(['#', '$']));
        unread.extend(found.map(|found| found.trim_start_matches("./").to_owned()));
    }
    assert!(known.len() >= 10 && known.contains("style.css") && known.contains("icon.svg"), "{known:?}");
}

#[test]
fn page_has_no_inline_code_and_scripts_parse_no_html() {
    let server = Server::start();
    let client = server.client_with(None);
    let (index, _) = file(&client, "/dashboard/");
    let tags: Vec<&str> = index.split('<').skip(1).map(|tag| tag.split('>').next().unwrap()).collect();
    for tag in &tags {
        let is_inline = tag.starts_with("style") || (tag.starts_with("script") && !tag.contains(" src="));
        let has_handler =
            tag.split_whitespace().skip(1).any(|part| part.starts_with("on") || part.starts_with("style="));
        assert!(!is_inline && !has_handler, "<{tag}>");
    }
    assert!(tags.iter().any(|tag| tag.starts_with("script ")), "{index}");
    for name in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/page")).unwrap() {
        let text = std::fs::read_to_string(name.unwrap().path()).unwrap();
        for parser in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "localStorage"]
        {
            assert!(!text.contains(parser), "{parser}");
        }
    }
}

#[test]
fn path_without_slash_leads_to_page_and_others_do_not_exist() {
    let server = Server::start();
    let client = server.client_with(None);
    let (index, _) = file(&client, "/dashboard/");
    assert_eq!(file(&client, "/dashboard").0, index, "after a redirect");
    for path in ["/dashboard/none", "/dashboard/page/main.js", "/dashboard/%ff", "/dashboard/..%2fstyle.css"]
    {
        let refused = client.get(path).expect(404);
        assert_eq!(refused["message"], format!("Route GET:{path} not found"));
    }
    client.post("/dashboard/", &json!({})).expect(404);
    for path in ["/dashboards", "/api/dashboard"] {
        client.get(path).expect(401);
    }
}

#[test]
fn unchanged_file_is_not_sent_again() {
    let server = Server::start();
    let client = server.client_with(None);
    let (_, headers, _) = client.download("/dashboard/main.js");
    let etag = headers["etag"].to_str().unwrap();
    let again = client.request("GET", "/dashboard/main.js", &[("if-none-match", etag)], b"");
    assert_eq!((again.status, &again.headers["etag"]), (304, &headers["etag"]));
    client.request("GET", "/dashboard/style.css", &[("if-none-match", etag)], b"").expect(200);
}

#[test]
fn page_can_be_disabled() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.toml");
    std::fs::write(&config, "page = false\n").unwrap();
    let config = ["--config", config.to_str().unwrap()];
    let variable = |value| [("ASH_DASHBOARD_ENABLED", value)];
    for server in [Server::start_with(&config, &[]), Server::start_with(&[], &variable("false"))] {
        for path in ["/dashboard", "/dashboard/", "/dashboard/main.js"] {
            server.client_with(None).get(path).expect(404);
        }
    }
    let server = Server::start_with(&config, &variable("true"));
    server.client_with(None).get("/dashboard/").expect(200);
}
