//! A proxy on loopback that cuts connections, and whose address stays while the server behind it is restarted.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Forwards connections to a server. The n-th connection is cut after as many bytes of responses as the n-th limit has;
/// later connections have no limit. A connection that the server refuses is closed.
pub struct CuttingProxy {
    address: SocketAddr,
    server: Arc<Mutex<String>>,
    connections: Arc<AtomicUsize>,
}

impl CuttingProxy {
    /// Starts the proxy. Its threads end with the test.
    pub fn start(server: &str, limits: &[usize]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (server, limits) = (Arc::new(Mutex::new(server.to_owned())), limits.to_vec());
        let current = Arc::clone(&server);
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let limit = limits.get(counter.fetch_add(1, Ordering::SeqCst)).copied();
                let (client, address) = (client.unwrap(), current.lock().unwrap().clone());
                let Ok(server) = TcpStream::connect(address) else { continue };
                let (requests, upstream) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || copy(requests, upstream, None));
                std::thread::spawn(move || copy(server, client, limit));
            }
        });
        CuttingProxy { address, server, connections }
    }

    /// The URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Forwards new connections to this address.
    pub fn set_server(&self, server: &str) {
        server.clone_into(&mut self.server.lock().unwrap());
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Copies at most `limit` bytes, and closes both.
fn copy(mut from: TcpStream, mut to: TcpStream, limit: Option<usize>) {
    let mut left = limit.unwrap_or(usize::MAX);
    let mut chunk = [0; 4096];
    while left > 0 {
        let wanted = chunk.len().min(left);
        match from.read(&mut chunk[..wanted]) {
            Ok(count) if count > 0 && to.write_all(&chunk[..count]).is_ok() => left -= count,
            _ => break,
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
