//! A collector of traces: a small HTTP server that decodes what the server exports.

use super::wait_until;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request to the collector.
#[derive(Debug, Clone)]
pub(crate) struct Export {
    /// The request line and the headers.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// A collector on loopback. Its threads end with the test.
pub(crate) struct Collector {
    address: SocketAddr,
    exports: Arc<Mutex<Vec<Export>>>,
}

impl Collector {
    /// Starts a collector that answers each request with this status line.
    pub(crate) fn start(status: &'static str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let exports = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&exports);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let received = Arc::clone(&received);
                std::thread::spawn(move || serve(stream.unwrap(), status, &received));
            }
        });
        Collector { address, exports }
    }

    /// The URL, for `--otlp-endpoint`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far.
    pub(crate) fn exports(&self) -> Vec<Export> {
        self.exports.lock().unwrap().clone()
    }

    /// The spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let resources = self.exports().into_iter().flat_map(|export| decode(&export).resource_spans);
        resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    /// The attributes of the process that sent the first spans.
    pub(crate) fn resource(&self) -> Vec<KeyValue> {
        let first = decode(&self.exports()[0]).resource_spans.remove(0);
        first.resource.unwrap().attributes
    }

    /// Waits for a span.
    pub(crate) fn wait_for(&self, what: &str, is_wanted: impl Fn(&Span) -> bool) -> Span {
        let mut found = None;
        wait_until(&format!("the collector has the span {what}"), || {
            found = self.spans().into_iter().find(&is_wanted);
            found.is_some()
        });
        found.unwrap()
    }
}

fn decode(export: &Export) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest::decode(&export.body[..]).unwrap()
}

fn serve(mut stream: TcpStream, status: &str, received: &Mutex<Vec<Export>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
        });
        let mut body = vec![0; length.unwrap()];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        received.lock().unwrap().push(Export { head, body });
        // An empty message of protobuf: everything was accepted.
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// The value of an attribute, as text; empty if it is missing.
pub(crate) fn attribute(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.clone()?.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(other) => panic!("unexpected attribute {key}: {other:?}"),
        None => String::new(),
    }
}

/// An id in hexadecimal.
pub(crate) fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
