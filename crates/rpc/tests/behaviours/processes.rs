//! Targets that are processes of their own: they die while they handle calls, and others take their places.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use ropewalk_rpc::{Address, CallError, CallOptions, Endpoint, Engine, thread::Driver};

use crate::{Double, LONG, Null, engines, options};

/// Tells this program, started again, that it is the server, and at which port.
const PORT: &str = "ROPEWALK_TEST_SERVER_PORT";

/// A server in a process of its own, which ends with this.
struct Server {
    child: Child,
    address: Address,
}

impl Server {
    fn start(port: u16) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::be_a_server", "--nocapture"])
            .env(PORT, port.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.map(Result::unwrap).find_map(|line| {
            let (_, address) = line.split_once("serves at ")?;
            Some(address.parse().unwrap())
        });
        let address = address.expect("the server tells its address");
        Self { child, address }
    }

    fn port(&self) -> u16 {
        self.address
            .location()
            .rsplit(':')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test, but the server that the others start.
#[test]
fn be_a_server() {
    let Ok(port) = std::env::var(PORT) else { return };
    let mut options = options(7);
    options.bind.set_port(port.parse().unwrap());
    let mut engine = Engine::new(Endpoint::bind(options).unwrap());
    engine.serve::<Null>(|_, ()| std::process::abort());
    engine.serve::<Double>(|_, number| Ok(number * 2));
    println!("\nserves at {}", engine.address());
    loop {
        engine.wait(LONG);
    }
}

/// A process that dies in a handler ends the call that it handled, and all others to it, as a death and at once,
/// although their deadlines are far.
#[test]
fn target_dies_in_a_handler() {
    let mut server = Server::start(0);
    let [mut origin] = engines();
    let deadly = origin.call::<Null>(&server.address, &(), LONG).unwrap();
    let others: Vec<_> = (0..10)
        .map(|number| origin.call::<Double>(&server.address, &number, LONG).unwrap())
        .collect();
    let start = Instant::now();
    assert!(matches!(origin.block_on(deadly), Err(CallError::PeerDied { .. })));
    for other in others {
        assert!(matches!(origin.block_on(other), Err(CallError::PeerDied { .. })));
    }
    assert!(start.elapsed() < LONG / 2);
    assert!(!server.child.wait().unwrap().success());
}

/// Calls that may be tried again outlive servers that are killed, one after the other, under the load of several
/// threads, as soon as another one serves at the same address.
#[test]
fn server_restarted_on_the_same_address() {
    let mut server = Server::start(0);
    let (port, address) = (server.port(), server.address.clone());
    let [origin] = engines();
    let (_driver, handle) = Driver::spawn(origin).unwrap();
    let options = CallOptions {
        retries: u32::MAX,
        idempotent: true,
        ..LONG.into()
    };
    thread::scope(|scope| {
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let (handle, address) = (handle.clone(), &address);
                scope.spawn(move || {
                    let start = Instant::now();
                    let mut number = 0;
                    while start.elapsed() < Duration::from_secs(1) {
                        let doubled = handle.call_blocking::<Double>(address, number, options);
                        assert_eq!(doubled.unwrap(), number * 2);
                        number += 1;
                    }
                    number
                })
            })
            .collect();
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(200));
            server.child.kill().unwrap();
            server.child.wait().unwrap();
            server = Server::start(port);
            assert_eq!(server.address, address);
        }
        for caller in callers {
            assert!(caller.join().unwrap() > 0);
        }
    });
    assert!(
        handle
            .with_blocking(|engine| engine.metrics().retries, LONG)
            .unwrap()
            > 0
    );
}
