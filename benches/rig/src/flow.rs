//! Streams of bytes between two hosts: in the background, and as a measure of the links.

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{Network, namespace::within};

/// So many bytes pass a link at once after a pause.
pub(crate) const BURST: u32 = 128 << 10;

/// A stream that goes as fast as it can, until this is dropped.
pub struct Flow {
    is_over: Arc<AtomicBool>,
    ends: Vec<JoinHandle<()>>,
}

impl Flow {
    /// Begins to send from one host to another.
    ///
    /// # Errors
    /// If these cannot be connected.
    pub fn start(network: &Network, from: u8, to: u8) -> anyhow::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = connect(network, from, to)?;
        let ends = [sender, receiver].into_iter().enumerate().map(|(at, stream)| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || pump(stream, at == 0, &is_over))
        });
        let ends = ends.collect();
        Ok(Self { is_over, ends })
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for end in self.ends.drain(..) {
            // A flow that failed has disturbed less, and nothing else.
            let _ = end.join();
        }
    }
}

/// Sends, or receives, until it is over or the other end is gone.
fn pump(mut stream: TcpStream, sends: bool, is_over: &AtomicBool) {
    const PATIENCE: Duration = Duration::from_millis(50);
    let mut buffer = vec![0; 256 << 10];
    let set = stream
        .set_read_timeout(Some(PATIENCE))
        .and(stream.set_write_timeout(Some(PATIENCE)));
    if set.is_err() {
        return;
    }
    while !is_over.load(Ordering::Relaxed) {
        let moved = match sends {
            true => stream.write(&buffer),
            false => stream.read(&mut buffer),
        };
        match moved {
            Ok(0) => return,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
}

/// The bytes a second that one connection brings from a host to another, once what a pause lets through has passed.
///
/// # Errors
/// If the connection fails.
pub fn goodput(network: &Network, from: u8, to: u8, bytes: usize) -> anyhow::Result<f64> {
    let (mut sender, mut receiver) = connect(network, from, to)?;
    thread::sleep(PAUSE);
    let begun = Instant::now();
    let sending = thread::spawn(move || sender.write_all(&vec![1; bytes]));
    let mut buffer = vec![0; 256 << 10];
    let mut received = 0;
    while received < bytes {
        received += match receiver.read(&mut buffer)? {
            0 => break,
            length => length,
        };
    }
    let elapsed = begun.elapsed();
    sending
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    anyhow::ensure!(received == bytes, "the connection ended after {received} bytes");
    Ok((bytes - BURST as usize) as f64 / elapsed.as_secs_f64())
}

/// Messages of 100 bytes that a host receives from another in a second: datagrams, each of which costs a call of the
/// system at both ends.
///
/// # Errors
/// If the system refuses a socket.
pub fn messages_a_second(network: &Network, from: u8, to: u8) -> anyhow::Result<f64> {
    const BYTES: usize = 100;
    const TIME: Duration = Duration::from_secs(2);
    const PATIENCE: Duration = Duration::from_millis(200);
    let bind = |host: u8| {
        within(&network.namespace(host), || {
            Ok(UdpSocket::bind((network.address(host), 0))?)
        })
    };
    let (sender, receiver) = (bind(from)?, bind(to)?);
    sender.connect(receiver.local_addr()?)?;
    receiver.set_read_timeout(Some(PATIENCE))?;
    let is_over = Arc::new(AtomicBool::new(false));
    let sending = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            while !is_over.load(Ordering::Relaxed) {
                // A queue that is full has no room for the next.
                let _ = sender.send(&[1; BYTES]);
            }
        }
    });
    let (begun, mut received) = (Instant::now(), 0_u32);
    while begun.elapsed() < TIME {
        received += u32::from(receiver.recv(&mut [0; BYTES]).is_ok());
    }
    let elapsed = begun.elapsed();
    is_over.store(true, Ordering::Relaxed);
    sending
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    anyhow::ensure!(received > 0, "host {to} received no message of host {from}");
    Ok(f64::from(received) / elapsed.as_secs_f64())
}

fn connect(network: &Network, from: u8, to: u8) -> anyhow::Result<(TcpStream, TcpStream)> {
    let address = network.address(to);
    let listener = within(&network.namespace(to), || Ok(TcpListener::bind((address, 0))?))?;
    let at = listener.local_addr()?;
    let sender = within(&network.namespace(from), || Ok(TcpStream::connect(at)?))?;
    Ok((sender, listener.accept()?.0))
}

/// Longer than it takes to save up a burst at the slowest rate that is measured.
const PAUSE: Duration = Duration::from_millis(200);
