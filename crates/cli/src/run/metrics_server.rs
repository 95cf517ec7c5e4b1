//! The HTTP server from which Prometheus reads the metrics of a job.

mod own_names;

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use own_names::OwnNames;

/// A thread that answers HTTP requests for `/metrics`. One request at a time, and none for long: it is meant for one
/// Prometheus nearby.
///
/// Everybody who can connect gets the metrics. A request for another host than this one is refused: with a name of its
/// own that leads here, a web page could make a browser of this host ask. This host is `localhost`, any literal
/// address, its host name with or without a domain that `/etc/resolv.conf` names, and what `/etc/hosts` calls it.
pub(super) struct MetricsServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// The longest request that is read, in bytes.
    const REQUEST_SIZE_MAX: usize = 8 << 10;
    /// How long one may take to ask, and again to read the answer.
    const TIMEOUT: Duration = Duration::from_secs(2);

    /// Listens at `address` and serves the OpenMetrics text that `read` gives, from a thread of its own until it is
    /// dropped.
    ///
    /// # Errors
    /// If the address cannot be listened on, or the operating system gives no thread.
    pub(super) fn serve(address: SocketAddr, read: impl Fn() -> String + Send + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let names = OwnNames::of_this_machine();
        let thread = thread::Builder::new()
            .name("ropewalk-metrics".to_owned())
            .spawn(move || {
                for connection in listener.incoming() {
                    if told.load(Ordering::SeqCst) {
                        return;
                    }
                    match connection {
                        // One that went away, or asked for nothing, is not our failure.
                        Ok(connection) => drop(answer_request(connection, &names, &read)),
                        // Out of descriptors, for one: asking again at once would not help.
                        Err(_) => thread::sleep(Duration::from_millis(100)),
                    }
                }
            })?;
        Ok(Self {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    /// Waits until a request in progress is answered.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let mut wake = self.address;
        if wake.ip().is_unspecified() {
            wake.set_ip(match wake {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        let woken = TcpStream::connect_timeout(&wake, Self::TIMEOUT);
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            // It only answers requests, and does not panic.
            let _ = thread.join();
        }
    }
}

fn answer_request(mut connection: TcpStream, names: &OwnNames, read: &impl Fn() -> String) -> io::Result<()> {
    connection.set_write_timeout(Some(MetricsServer::TIMEOUT))?;
    let answer = match read_request(&mut connection, names)? {
        Asked::Metrics => answer("200 OK", CONTENT_TYPE, &read()),
        Asked::Other => answer("404 Not Found", "text/plain", "the metrics are at /metrics\n"),
        Asked::Elsewhere => answer("421 Misdirected Request", "text/plain", ELSEWHERE),
    };
    connection.write_all(answer.as_bytes())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Metrics,
    Other,
    /// Of another host.
    Elsewhere,
}

/// The part of a request that was read so far.
#[derive(Default)]
struct RequestHead(Vec<u8>);

/// The bytes behind the head of a request.
const END: &[u8] = b"\r\n\r\n";

/// Reads the head of a request, which has to come soon and to be short.
fn read_request(connection: &mut TcpStream, names: &OwnNames) -> io::Result<Asked> {
    let deadline = Instant::now() + MetricsServer::TIMEOUT;
    let mut head = RequestHead::default();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        connection.set_read_timeout(Some(left))?;
        let mut chunk = [0; 1024];
        let read = connection.read(&mut chunk)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(asked) = head.handle_bytes(&chunk[..read], names)? {
            return Ok(asked);
        }
    }
}

impl RequestHead {
    /// Takes what was read next. Returns what was asked for once that is known.
    ///
    /// # Errors
    /// If it is too long.
    fn handle_bytes(&mut self, bytes: &[u8], names: &OwnNames) -> io::Result<Option<Asked>> {
        let known = self.0.len().saturating_sub(END.len() - 1);
        self.0.extend_from_slice(bytes);
        let ends = self.0[known..].windows(END.len()).any(|end| end == END);
        if self.0.len() > MetricsServer::REQUEST_SIZE_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(ends.then(|| self.asked(names)))
    }

    /// The request in a whole head.
    fn asked(&self, names: &OwnNames) -> Asked {
        let wanted = [&b"GET /metrics "[..], b"GET /metrics?"];
        if self.hosts().any(|host| !names.has(host)) {
            Asked::Elsewhere
        } else if wanted.iter().any(|wanted| self.0.starts_with(wanted)) {
            Asked::Metrics
        } else {
            Asked::Other
        }
    }

    /// The hosts that the request says it is for. Browsers say one, and tools may say none.
    fn hosts(&self) -> impl Iterator<Item = &[u8]> {
        let lines = self.0.split(|&byte| byte == b'\n').skip(1);
        lines.filter_map(|line| {
            let colon = line.iter().position(|&byte| byte == b':')?;
            let (name, value) = line.split_at(colon);
            let is_host = name.trim_ascii().eq_ignore_ascii_case(b"host");
            is_host.then(|| value[1..].trim_ascii())
        })
    }
}

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const ELSEWHERE: &str = "this is another host: ask for localhost, its address or its host name\n";

/// Takes a request in pieces whose size the first byte says: what is asked for does not depend on the pieces.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_request(bytes: &[u8]) {
    let Some((&size, request)) = bytes.split_first() else {
        return;
    };
    let names = OwnNames::default();
    let asked = |size: usize| {
        let mut head = RequestHead::default();
        for piece in request.chunks(size) {
            match head.handle_bytes(piece, &names) {
                Ok(Some(asked)) => return Some(asked),
                Ok(None) => {}
                Err(_) => return None,
            }
            assert!(
                head.0.len() <= MetricsServer::REQUEST_SIZE_MAX,
                "it is kept although it is too long"
            );
        }
        None
    };
    let at_once = asked(request.len().max(1));
    let in_pieces = asked(usize::from(size) + 1);
    // At once it may be too long with what comes behind it.
    if at_once.is_some() || request.len() <= MetricsServer::REQUEST_SIZE_MAX {
        assert_eq!(at_once, in_pieces, "it depends on the pieces");
    }
}

fn answer(status: &str, content_type: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request for the metrics gets them, from this host; any other request is refused, and a client that does not
    /// ask does not keep others.
    #[test]
    fn metrics_are_served() {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = MetricsServer::serve(loopback, || "test_calls_total 1\n# EOF\n".to_owned()).unwrap();
        let ask = |request: &str| {
            let mut connection = TcpStream::connect(server.address()).unwrap();
            connection.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            // One that is cut off may not even be let read to the end.
            let _ = connection.read_to_string(&mut answer);
            answer
        };
        let silent = TcpStream::connect(server.address()).unwrap();
        let answer = ask("GET /metrics HTTP/1.1\r\nHost: localhost:9090\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(
            head.contains(&format!("Content-Length: {}", body.len())),
            "{head}"
        );
        assert_eq!(body, "test_calls_total 1\n# EOF\n");
        // As a browser asks for a page whose name leads here since a moment ago.
        let rebound = ask("GET /metrics HTTP/1.1\r\nAccept: */*\r\nhost : evil.example\r\n\r\n");
        assert!(rebound.starts_with("HTTP/1.1 421 "), "{rebound}");
        assert!(!rebound.contains("test_calls"), "{rebound}");
        assert!(ask("GET /secrets HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert_eq!(ask(&"x".repeat(10_000)), "");
        drop(silent);
        let address = server.address();
        drop(server);
        assert!(TcpStream::connect(address).is_err());
    }
}
