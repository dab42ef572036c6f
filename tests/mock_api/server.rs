//! The listener, a thread for each connection, and the routes.

use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

use super::http::{self, EventStream, Request};
use super::record::{Recorder, Turn};
use super::{reply, script};

/// A running mock; it ends, with all its connections, when dropped.
#[derive(Debug)]
pub(crate) struct MockApi {
    listener: Arc<Listener>,
    recorder: Arc<Recorder>,
    acceptor: Option<JoinHandle<()>>,
}

impl MockApi {
    /// Serves on a unix socket that every user may connect to.
    pub(crate) fn on_unix(path: &Path) -> Self {
        let listener = UnixListener::bind(path)
            .unwrap_or_else(|error| panic!("cannot listen on {}: {error}", path.display()));
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).expect("the mock owns its socket");
        MockApi::serve(Listener::Unix(listener))
    }

    /// Serves on a free port of 127.0.0.1; the port comes with it.
    pub(crate) fn on_loopback() -> (Self, u16) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        let port = listener.local_addr().expect("a listener has an address").port();
        (MockApi::serve(Listener::Tcp(listener)), port)
    }

    /// The requests for a message so far, in order.
    pub(crate) fn turns(&self) -> Vec<Turn> {
        self.recorder.turns()
    }

    /// The newest request for a message.
    pub(crate) fn last_turn(&self) -> Turn {
        self.turns().pop().expect("the agent has asked the model")
    }

    /// Method and target of every other request so far.
    pub(crate) fn other_requests(&self) -> Vec<String> {
        self.recorder.others()
    }

    /// Blocks until this many streams were left by their peer before the end: what an interrupt comes to.
    pub(crate) fn wait_for_abandoned_streams(&self, count: usize) {
        self.recorder.wait_for_abandoned(count);
    }

    /// Lets endless streams come to their end.
    pub(crate) fn stop_streams(&self) {
        self.recorder.stop();
    }

    fn serve(listener: Listener) -> Self {
        let listener = Arc::new(listener);
        let recorder = Arc::new(Recorder::default());
        let acceptor = {
            let (listener, recorder) = (Arc::clone(&listener), Arc::clone(&recorder));
            thread::spawn(move || accept_all(&listener, &recorder))
        };
        MockApi { listener, recorder, acceptor: Some(acceptor) }
    }
}

impl Drop for MockApi {
    fn drop(&mut self) {
        self.recorder.stop();
        self.listener.close();
        if let Some(acceptor) = self.acceptor.take() {
            // Its panic has been printed; a second one in a drop would abort the whole test binary.
            let _ = acceptor.join();
        }
    }
}

fn accept_all(listener: &Listener, recorder: &Arc<Recorder>) {
    let open: Mutex<Vec<Stream>> = Mutex::default();
    thread::scope(|connections| {
        while let Ok(stream) = listener.accept() {
            open.lock().expect("no holder panics").push(stream.try_clone().expect("a stream can be cloned"));
            connections.spawn(|| {
                // An error is a peer that went, at any point of the exchange.
                let _ = converse(stream, recorder);
            });
        }
        // Readers blocked on idle connections see the end of file.
        open.lock().expect("no holder panics").iter().for_each(Stream::close);
    });
}

fn converse(stream: Stream, recorder: &Recorder) -> io::Result<()> {
    let mut to = stream.try_clone()?;
    let mut from = BufReader::new(stream);
    while let Some(request) = http::read_request(&mut from)? {
        answer(&request, &mut to, recorder)?;
    }
    Ok(())
}

fn answer(request: &Request, to: &mut Stream, recorder: &Recorder) -> io::Result<()> {
    match (request.method.as_str(), request.path()) {
        ("POST", "/v1/messages") => match serde_json::from_slice(&request.body) {
            Ok(body) => answer_turn(body, request.key.clone(), to, recorder),
            Err(error) => {
                let error = json!({"type": "invalid_request_error", "message": error.to_string()});
                respond(to, 400, &json!({"type": "error", "error": error}))
            }
        },
        ("POST", "/v1/messages/count_tokens") => {
            recorder.other(format!("{} {}", request.method, request.target));
            respond(to, 200, &json!({"input_tokens": 11}))
        }
        _ => {
            recorder.other(format!("{} {}", request.method, request.target));
            respond(to, 200, &json!({}))
        }
    }
}

fn answer_turn(body: Value, key: Option<String>, to: &mut Stream, recorder: &Recorder) -> io::Result<()> {
    let reply = script::reply_to(&body);
    let model = body["model"].clone();
    let streams = body["stream"] == true;
    let id = format!("msg_{:08}", recorder.turn(body, key));
    if !streams {
        return respond(to, 200, &reply::message(&id, &model, &reply));
    }
    let result =
        EventStream::start(to).and_then(|events| reply::stream(events, &id, &model, &reply, recorder));
    result.inspect_err(|_| recorder.abandoned())
}

fn respond(to: &mut Stream, status: u16, body: &Value) -> io::Result<()> {
    http::respond(to, status, "application/json", body.to_string().as_bytes())
}

/// Either kind of listener.
#[derive(Debug)]
enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Unix(listener) => Ok(Stream::Unix(listener.accept()?.0)),
            Listener::Tcp(listener) => Ok(Stream::Tcp(listener.accept()?.0)),
        }
    }

    /// Wakes the thread that accepts: on Linux, shutting a listening socket down fails its accept.
    fn close(&self) {
        use std::os::fd::AsRawFd;
        let fd = match self {
            Listener::Unix(listener) => listener.as_raw_fd(),
            Listener::Tcp(listener) => listener.as_raw_fd(),
        };
        let _ = nix::sys::socket::shutdown(fd, nix::sys::socket::Shutdown::Both);
    }
}

/// Either kind of connection.
#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn try_clone(&self) -> io::Result<Self> {
        match self {
            Stream::Unix(stream) => stream.try_clone().map(Stream::Unix),
            Stream::Tcp(stream) => stream.try_clone().map(Stream::Tcp),
        }
    }

    /// Ends both directions; a connection that is closed already is fine.
    fn close(&self) {
        let _ = match self {
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(buffer),
            Stream::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(buffer),
            Stream::Tcp(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
