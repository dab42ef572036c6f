//! Files of the workspace of a session.

use crate::support::{Server, base64};
use serde_json::{Value, json};

fn names(files: &Value) -> Vec<String> {
    files["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn files_are_listed_read_written_and_deleted() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let path = format!("/api/sessions/{session}/files");
    client.run_turn(
        &session,
        "run: mkdir -p d/node_modules .hidden; echo 'a b' > 'd/x y.txt'; touch d/node_modules/n s.sock .hidden/h; ln -s /etc etc",
    );
    for source in ["sandbox", "snapshot"] {
        let listed = client.get(&path).expect(200);
        assert_eq!(listed["source"], source);
        let found = names(&listed);
        assert!(
            found.contains(&"d/x y.txt".to_owned()) && found.contains(&".hidden/h".to_owned()),
            "{found:?}"
        );
        assert!(
            !found.iter().any(|name| name.contains("node_modules") || name == "s.sock" || name == "etc"),
            "{found:?}"
        );
        let entry = &listed["files"][found.iter().position(|name| name == "d/x y.txt").unwrap()];
        assert_eq!(entry["size"], 4);
        assert!(entry["modifiedAt"].as_str().unwrap().ends_with('Z'));
        let visible = names(&client.get(&format!("{path}?includeHidden=false")).expect(200));
        assert!(!visible.contains(&".hidden/h".to_owned()) && visible.contains(&"d/x y.txt".to_owned()));

        let file = client.get(&format!("{path}/d/x%20y.txt?format=json")).expect(200);
        assert_eq!(file, json!({ "path": "d/x y.txt", "content": "a b\n", "size": 4, "source": source }));
        let (status, headers, bytes) = client.download(&format!("{path}/d/x%20y.txt"));
        assert_eq!((status, bytes.as_slice()), (200, &b"a b\n"[..]));
        assert_eq!(headers["content-disposition"], "attachment; filename*=UTF-8''x%20y.txt");
        assert_eq!(
            (&headers["content-type"], &headers["x-content-type-options"]),
            (&"text/plain".parse().unwrap(), &"nosniff".parse().unwrap())
        );
        assert_eq!(headers["x-ash-source"], source);

        let large = vec![0xff; 3 << 20];
        let body = json!({ "files": [
            { "path": "new/a", "content": base64(b"one") },
            { "path": "../x", "content": "" },
            { "path": ".DS_Store", "content": "" },
            { "path": "large", "content": base64(&large), "mimeType": "application/x" },
            { "path": ".git/hooks/post-checkout", "content": "" },
            { "path": "etc/x", "content": "" },
        ], "targetPath": "up" });
        let written = client.post(&path, &body).expect(200);
        let written = written["files"].as_array().unwrap();
        assert_eq!(written[0], json!({ "path": "new/a", "written": true, "size": 3 }));
        assert_eq!(written[1], json!({ "path": "../x", "written": false, "error": "Invalid file path" }));
        assert_eq!(written[2]["error"], "Skipped: .DS_Store");
        assert_eq!(written[3]["written"], true, "{written:?}");
        assert!(written[4]["error"].as_str().unwrap().contains("protected"), "{written:?}");
        assert_eq!(written[5]["written"], true, "a directory of this name in up");
        assert_eq!(client.download(&format!("{path}/up/large")).2, large);
        let too_large = client.get(&format!("{path}/up/large?format=json")).expect(400);
        assert!(too_large["error"].as_str().unwrap().contains("File too large"), "{too_large}");
        let through_link = json!({ "files": [{ "path": "etc/x", "content": "" }] });
        assert_eq!(client.post(&path, &through_link).expect(200)["files"][0]["written"], false);

        let deleted = client.delete(&format!("{path}/up/new/a")).expect(200);
        assert_eq!(deleted, json!({ "path": "up/new/a", "deleted": true }));
        for missing in ["up/new/a", "none", "etc/passwd", "d/x%20y.txt/z"] {
            let (status, _, bytes) = client.download(&format!("{path}/{missing}"));
            let text = String::from_utf8_lossy(&bytes);
            assert!([400, 404].contains(&status), "{missing}: {status} {text}");
            assert!(!text.contains("root:"), "{missing}: {text}");
        }
        assert_eq!(client.get(&format!("{path}/none")).expect(404)["error"], "File not found");
        assert_eq!(client.get(&format!("{path}/d")).expect(400)["error"], "Path is not a file");
        assert_eq!(client.delete(&format!("{path}/none")).expect(404)["error"], "File not found");
        assert_eq!(
            client.get(&format!("{path}/a/%2e%2e/%2e%2e/x")).expect(400)["error"],
            "Invalid file path"
        );
        assert_eq!(client.get(&format!("{path}/%2fetc%2fpasswd")).expect(400)["error"], "Invalid file path");
        client.delete(&format!("/api/sessions/{session}")).expect(200);
    }
}

#[test]
fn files_of_no_session_are_not_found() {
    let server = Server::start();
    let client = server.client();
    let id = "00000000-0000-4000-8000-000000000000";
    for path in [format!("/api/sessions/{id}/files"), format!("/api/sessions/{id}/files/x")] {
        assert_eq!(client.get(&path).expect(404)["error"], "Session not found");
    }
    client.get("/api/sessions/x/files/y").expect(400);
    let session = server.create_session();
    let path = format!("/api/sessions/{session}/files");
    client.post(&path, &json!({ "files": [] })).expect(400);
    let many = vec![json!({ "path": "a", "content": "" }); 501];
    client.post(&path, &json!({ "files": many })).expect(400);
}

#[test]
fn workspace_is_downloaded_and_uploaded() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    client.run_turn(&session, "run: mkdir -p d/node_modules; echo one > d/one; echo x > .env; ln -s /etc/passwd link; chmod 755 d/one");
    let path = |session: &str| format!("/api/sessions/{session}/workspace");
    let (status, headers, archive) = client.download(&path(&session));
    assert_eq!((status, &headers["content-type"]), (200, &"application/gzip".parse().unwrap()));
    assert_eq!(headers["content-disposition"], format!("attachment; filename=\"{session}.tar.gz\""));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.tar.gz");
    std::fs::write(&file, &archive).unwrap();
    let listed = std::process::Command::new("tar").arg("-tvzf").arg(&file).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.contains("-rwxr-xr-x") && listed.contains(" d/one\n") && listed.contains(" CLAUDE.md\n"),
        "{listed}"
    );
    assert!(!listed.contains("link") && !listed.contains(".env") && !listed.contains("passwd"), "{listed}");

    let other = client.post("/api/sessions", &json!({ "agent": "hello" })).expect(201);
    let other = other["session"]["id"].as_str().unwrap();
    let read = || {
        client.get(&format!("/api/sessions/{other}/files/d/one?format=json")).expect(200)["content"].clone()
    };
    let bundle = json!({ "bundle": base64(&archive) });
    let answer = client.post(&path(other), &bundle).expect(200);
    assert_eq!(answer["message"], "Workspace restored to live sandbox");
    // No upload changes a protected name.
    let skipped = answer["skipped"].as_array().unwrap();
    assert!(skipped.len() == 1 && skipped[0]["path"] == "saggar.toml", "{answer}");
    assert_eq!(read(), "one\n");
    client.run_turn(other, "run: echo two > d/one");
    client.delete(&format!("/api/sessions/{other}")).expect(200);
    let answer = client.post(&path(other), &bundle).expect(200);
    assert_eq!((&answer["message"], read()), (&json!("Workspace saved as snapshot"), json!("one\n")));
    assert_eq!(client.post(&path(other), &json!({ "bundle": "" })).expect(400)["error"], "Empty bundle");
    assert_eq!(client.post(&path(other), &json!({})).expect(400)["error"], "Empty bundle");
    let invalid = client.post(&path(other), &json!({ "bundle": base64(b"no archive") })).expect(400);
    assert!(invalid["error"].as_str().unwrap().contains("Invalid bundle"), "{invalid}");
}
