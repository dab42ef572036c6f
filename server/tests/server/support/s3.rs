//! A stand-in for an S3 API: one bucket in memory. It requires a signature in each request, and does not verify it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// The name of the bucket.
pub(crate) const BUCKET: &str = "agents";

/// The stand-in. It serves until the process exits.
#[derive(Debug)]
pub(crate) struct S3 {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Whether uploads wait, and how many do.
    held: Mutex<(bool, usize)>,
    changed: Condvar,
}

struct Request {
    method: String,
    path: String,
    query: String,
    is_signed: bool,
    body: Vec<u8>,
}

impl S3 {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, state) = (listener.local_addr().unwrap(), Arc::<State>::default());
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                // A client that has been killed is no failure of a test.
                std::thread::spawn(move || serve(&stream, &state));
            }
        });
        S3 { address, state }
    }

    /// The variables of a server that uses it.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        [
            ("ASH_SNAPSHOT_URL", format!("s3://{BUCKET}/some/prefix")),
            ("AWS_ENDPOINT_URL_S3", format!("http://{}", self.address)),
            ("AWS_ACCESS_KEY_ID", "the-key-id".into()),
            ("AWS_SECRET_ACCESS_KEY", "the-secret".into()),
            ("AWS_REGION", "eu-test-1".into()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// The keys of the objects of sessions.
    pub(crate) fn session_keys(&self) -> Vec<String> {
        let objects = self.state.objects.lock().unwrap();
        objects.keys().filter(|key| key.contains("/sessions/")).cloned().collect()
    }

    /// Lets uploads wait until they are released.
    pub(crate) fn hold_uploads(&self) {
        self.state.held.lock().unwrap().0 = true;
    }

    /// Waits until an upload waits.
    pub(crate) fn wait_for_held_upload(&self) {
        let held = self.state.held.lock().unwrap();
        drop(self.state.changed.wait_while(held, |(_, waiting)| *waiting == 0).unwrap());
    }

    /// Completes the uploads that wait.
    pub(crate) fn release_uploads(&self) {
        self.state.held.lock().unwrap().0 = false;
        self.state.changed.notify_all();
    }
}

fn serve(stream: &TcpStream, state: &State) -> Option<()> {
    let request = read(stream)?;
    let (status, body) = answer(&request, state);
    let mut stream = stream;
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nETag: \"e\"\r\nLast-Modified: Sat, 28 Nov 2026 10:00:00 GMT\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(&body).ok()
}

fn answer(request: &Request, state: &State) -> (u16, Vec<u8>) {
    if !request.is_signed {
        return (403, b"<Error><Code>AccessDenied</Code></Error>".into());
    }
    let key = request.path.strip_prefix(&format!("/{BUCKET}")).unwrap().trim_start_matches('/').to_owned();
    match request.method.as_str() {
        "PUT" => {
            let mut held = state.held.lock().unwrap();
            if held.0 {
                held.1 += 1;
                state.changed.notify_all();
                held = state.changed.wait_while(held, |(is_held, _)| *is_held).unwrap();
                held.1 -= 1;
            }
            drop(held);
            state.objects.lock().unwrap().insert(key, request.body.clone());
            (200, Vec::new())
        }
        "GET" if key.is_empty() => (200, list(request, state)),
        "GET" => match state.objects.lock().unwrap().get(&key) {
            Some(content) => (200, content.clone()),
            None => (404, b"<Error><Code>NoSuchKey</Code></Error>".into()),
        },
        "DELETE" => {
            state.objects.lock().unwrap().remove(&key);
            (204, Vec::new())
        }
        method => panic!("unexpected request {method} {}", request.path),
    }
}

fn list(request: &Request, state: &State) -> Vec<u8> {
    let mut parameters = request.query.split('&').filter_map(|pair| pair.split_once('='));
    let prefix = parameters.find(|(name, _)| *name == "prefix").map_or("", |(_, value)| value);
    let prefix = prefix.replace("%2F", "/");
    let objects = state.objects.lock().unwrap();
    let entry = |(key, content): (&String, &Vec<u8>)| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-11-28T10:00:00.000Z</LastModified>\
             <ETag>e</ETag><Size>{}</Size></Contents>",
            content.len()
        )
    };
    let entries: String = objects.iter().filter(|(key, _)| key.starts_with(&prefix)).map(entry).collect();
    format!("<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>").into_bytes()
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let (mut length, mut is_signed) = (0, false);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "authorization" => {
                is_signed = value.starts_with("AWS4-HMAC-SHA256 Credential=the-key-id/")
                    && value.contains("/eu-test-1/s3/aws4_request")
                    && value.contains("Signature=");
            }
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, path: path.to_owned(), query: query.to_owned(), is_signed, body })
}
