//! Attachments of sessions.

use crate::support::{Server, base64, hello_folder};
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn attachment_is_stored_copied_to_workspace_and_deleted() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let path = format!("/api/sessions/{session}/attachments");
    let body = json!({ "filename": "a ä.txt", "content": base64(b"hello\n"), "mimeType": "text/x-note" });
    let created = client.post(&path, &body).expect(201);
    let attachment = &created["attachment"];
    let id = attachment["id"].as_str().unwrap();
    assert_eq!((&created["workspaceError"], &attachment["messageId"]), (&json!(null), &json!("unlinked")));
    assert_eq!(
        (&attachment["filename"], &attachment["mimeType"], &attachment["size"]),
        (&json!("a ä.txt"), &json!("text/x-note"), &json!(6))
    );
    assert_eq!((&attachment["sessionId"], &attachment["tenantId"]), (&json!(session), &json!("default")));
    let exec = json!({ "command": "cat 'attachments/a ä.txt'" });
    assert_eq!(client.post(&format!("/api/sessions/{session}/exec"), &exec).expect(200)["stdout"], "hello\n");
    let file = server.data_dir().join("attachments").join(&session).join(id);
    assert_eq!(fs::read(&file).unwrap(), b"hello\n");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    assert_eq!(client.get(&path).expect(200), json!({ "attachments": [attachment] }));
    let own = format!("/api/attachments/{id}");
    let (status, headers, bytes) = client.download(&own);
    assert_eq!((status, bytes.as_slice()), (200, &b"hello\n"[..]));
    assert_eq!(headers["content-type"], "text/x-note");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["content-disposition"], "attachment; filename*=UTF-8''a%20%C3%A4.txt");

    assert_eq!(client.delete(&own).expect(200), json!({ "ok": true }));
    assert!(!file.exists());
    for answer in [client.get(&own), client.delete(&own)] {
        assert_eq!(answer.expect(404), json!({ "error": "Attachment not found", "statusCode": 404 }));
    }
    assert_eq!(client.get(&path).expect(200), json!({ "attachments": [] }));
}

#[test]
fn attachment_of_ten_mebibytes_is_accepted_and_a_larger_one_refused() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let path = format!("/api/sessions/{session}/attachments");
    let body = |size: usize| json!({ "filename": "large.bin", "content": base64(&vec![7; size]) });
    let created = client.post(&path, &body(10 << 20)).expect(201);
    assert_eq!(created["attachment"]["size"], 10 << 20);
    assert_eq!(created["attachment"]["mimeType"], "application/octet-stream");
    let (_, _, bytes) =
        client.download(&format!("/api/attachments/{}", created["attachment"]["id"].as_str().unwrap()));
    assert_eq!(bytes, vec![7; 10 << 20]);
    let refused = client.post(&path, &body((10 << 20) + 1)).expect(413);
    assert!(refused["error"].as_str().unwrap().contains("Attachment too large"), "{refused}");
    assert_eq!(client.get(&path).expect(200)["attachments"].as_array().unwrap().len(), 1);

    let server = Server::start_with(&[], &[("ASH_MAX_ATTACHMENT_SIZE", "3")]);
    let (client, session) = (server.client(), server.create_session());
    let path = format!("/api/sessions/{session}/attachments");
    client.post(&path, &body(3)).expect(201);
    client.post(&path, &body(4)).expect(413);
}

#[test]
fn invalid_attachments_are_refused() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let path = format!("/api/sessions/{session}/attachments");
    let post = |path: &str, filename: &str, content: &str| {
        client.post(path, &json!({ "filename": filename, "content": content }))
    };
    assert_eq!(post(&path, "a", "").expect(400)["error"], "Empty attachment content");
    for name in ["", "..", "../x", "a/b", "/etc/x", "a\u{0}"] {
        let refused = post(&path, name, "eA==").expect(400);
        assert!(refused["error"].as_str().unwrap().starts_with("Invalid filename"), "{refused}");
    }
    post(&path, "a", "!").expect(400);
    client.post(&path, &json!({ "filename": "a", "content": "eA==", "messageId": "x" })).expect(400);
    let other = "00000000-0000-4000-8000-000000000000";
    post(&format!("/api/sessions/{other}/attachments"), "a", "eA==").expect(404);
    client.get(&format!("/api/sessions/{other}/attachments")).expect(404);
    client.get(&format!("/api/attachments/{other}")).expect(404);
    client.get("/api/attachments/x").expect(400);
    assert!(!server.data_dir().join("attachments").exists());
    // A media type that is not plain is stored, and not sent.
    let body = json!({ "filename": "a.html", "content": "eA==", "mimeType": "text/html; charset=x" });
    let id = client.post(&path, &body).expect(201)["attachment"]["id"].as_str().unwrap().to_owned();
    assert_eq!(
        client.download(&format!("/api/attachments/{id}")).1["content-type"],
        "application/octet-stream"
    );
}

#[test]
fn attachment_exists_if_the_workspace_refuses_its_file() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    client.run_turn(&session, "run: ln -s /etc attachments");
    let path = format!("/api/sessions/{session}/attachments");
    let created = client.post(&path, &json!({ "filename": "a", "content": base64(b"x") })).expect(201);
    let error = created["workspaceError"].as_str().unwrap();
    assert!(error.contains("attachments/a"), "{error}");
    let id = created["attachment"]["id"].as_str().unwrap();
    assert_eq!(client.download(&format!("/api/attachments/{id}")).2, b"x");
}

#[test]
fn attachments_are_removed_with_their_session() {
    let mut server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let path = format!("/api/sessions/{session}/attachments");
    let created = client.post(&path, &json!({ "filename": "a", "content": base64(b"x") })).expect(201);
    let own = format!("/api/attachments/{}", created["attachment"]["id"].as_str().unwrap());
    server.stop(Signal::TERM);
    server.restart();
    let client = server.client();
    assert_eq!(client.download(&own).2, b"x");
    client.delete(&format!("/api/sessions/{session}")).expect(200);
    // An ended session has its attachments, and takes further ones.
    assert_eq!(client.download(&own).2, b"x");
    client.post(&path, &json!({ "filename": "b", "content": base64(b"y") })).expect(201);
    client.delete("/api/agents/hello").expect(200);
    client.get(&own).expect(404);
    assert_eq!(fs::read_dir(server.data_dir().join("attachments")).unwrap().count(), 0);
    assert!(hello_folder().join("CLAUDE.md").exists() && !hello_folder().join("attachments").exists());
}

#[test]
fn attachments_of_another_tenant_are_not_found() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let other = server.client_of_tenant("other");
    let path = format!("/api/sessions/{session}/attachments");
    let body = json!({ "filename": "a", "content": base64(b"x") });
    let created = client.post(&path, &body).expect(201);
    let own = format!("/api/attachments/{}", created["attachment"]["id"].as_str().unwrap());
    other.post(&path, &body).expect(404);
    other.get(&path).expect(404);
    other.get(&own).expect(404);
    other.delete(&own).expect(404);
    assert_eq!(client.download(&own).2, b"x");
}
