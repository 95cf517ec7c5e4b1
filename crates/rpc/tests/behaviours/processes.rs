//! Engines that are processes of their own: they die while they handle calls and move bulk, others take their places,
//! and handles go from one to the next.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_rpc::{
    Address, Buffer, BulkHandle, CallError, CallOptions, Engine, Fault, InProgress, Pipeline, Procedure,
    Transfer, TransferError, thread::Driver,
};

use crate::{
    Double, Echo, LONG, Null, Relayed, SumOf, drive, engines, options, options_at, serve_sum_of,
    settings::{heed, tell},
};

crate::on_every_transport! {
    handle_forwarded_to_a_third_process,
}

/// A process that is killed while it holds a lock of libfabric's `shm` (a spin lock in memory that both see,
/// 1.17) keeps it, and whoever sends to it next turns in libfabric for ever.
mod dying {
    crate::on_every_transport! { without_ofi_shm:
        target_dies_in_a_handler,
        target_dies_in_an_overflow_pull,
        target_dies_in_a_bulk_transfer_of_either_direction,
    }
    use super::{
        target_dies_in_a_bulk_transfer_of_either_direction, target_dies_in_a_handler,
        target_dies_in_an_overflow_pull,
    };
}

/// libfabric's `shm` names endpoints by the number of their process: nobody can come to the address of another.
mod restarted {
    crate::on_every_transport! { any_driver_without_ofi_shm: server_restarted_on_the_same_address, }
    use super::server_restarted_on_the_same_address;
}

/// Tells this program, started again, that it is a server, and where: an address, or nothing for any.
const SERVER: &str = "ROPEWALK_TEST_SERVER";
/// Tells it whom to pass handles on to.
const THIRD: &str = "ROPEWALK_TEST_THIRD";

/// How much memory a server shows.
const BULK: usize = 16 << 20;

/// Shows memory of the server.
struct Shown;

impl Procedure for Shown {
    const NAME: &'static str = "test.Shown";
    type Input = ();
    type Output = BulkHandle;
}

/// A server in a process of its own, which ends with this.
struct Server {
    child: Child,
    address: Address,
}

impl Server {
    fn start() -> Self {
        Self::start_at(None, None)
    }

    /// At the address of an earlier one, passing handles on to a third.
    fn start_at(address: Option<&Address>, third: Option<&Address>) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "processes::be_a_server", "--nocapture"])
            .env(SERVER, address.map(Address::to_string).unwrap_or_default())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        tell(&mut command);
        if let Some(third) = third {
            command.env(THIRD, third.to_string());
        }
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.map(Result::unwrap).find_map(|line| {
            let (_, address) = line.split_once("serves at ")?;
            Some(address.parse().unwrap())
        });
        let address = address.expect("the server tells its address");
        Self { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What libfabric's `shm` leaves behind when its process is killed.
        let name = format!("{}:", self.child.id());
        for file in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            if file.file_name().to_string_lossy().starts_with(&name) {
                let _ = fs::remove_file(file.path());
            }
        }
    }
}

/// Not a test, but the server that the others start.
#[test]
fn be_a_server() {
    let Ok(address) = env::var(SERVER) else { return };
    assert!(heed(), "a server is told over what it serves");
    let options = match address.parse() {
        Ok(address) => options_at(7, &address),
        Err(_) => options(7),
    };
    let mut engine = Engine::new(ropewalk_rpc::bind(options).unwrap());
    engine.serve::<Null>(|_, ()| std::process::abort());
    engine.serve::<Double>(|_, number| Ok(number * 2));
    engine.serve::<Echo>(|_, bytes| Ok(bytes));
    serve_sum_of(&mut engine);
    if let Ok(third) = env::var(THIRD) {
        let third: Address = third.parse().unwrap();
        engine.serve_async::<Relayed, _>(move |context, handle| {
            let third = third.clone();
            async move {
                let sum = context.call::<SumOf>(&third, handle, LONG).await;
                sum.map_err(Fault::new)
            }
        });
    }
    let memory = engine.expose_segments_writable(vec![Buffer::copy_of(&[3; BULK / 2]); 2]);
    let memory = memory.unwrap();
    engine.serve::<Shown>(move |_, ()| Ok(memory.clone()));
    println!("\nserves at {}", engine.address());
    loop {
        engine.wait(LONG);
    }
}

/// A process that dies in a handler ends the call that it handled, and all others to it, as a death and at once,
/// although their deadlines are far.
fn target_dies_in_a_handler() {
    let mut server = Server::start();
    let [mut origin] = engines();
    let mut deadly = origin.call::<Null>(&server.address, &(), LONG).unwrap();
    let others: Vec<_> = (0..10)
        .map(|number| origin.call::<Double>(&server.address, &number, LONG).unwrap())
        .collect();
    let start = Instant::now();
    let ended = drive(&mut [&mut origin], || deadly.try_take());
    assert!(matches!(ended, Err(CallError::PeerDied { .. })), "{ended:?}");
    for mut other in others {
        let ended = drive(&mut [&mut origin], || other.try_take());
        assert!(matches!(ended, Err(CallError::PeerDied { .. })), "{ended:?}");
    }
    assert!(start.elapsed() < LONG / 2);
    assert!(!server.child.wait().unwrap().success());
}

/// A process that is killed while it pulls large inputs, or its large outputs are pulled, ends these calls, and
/// nothing stays of them.
fn target_dies_in_an_overflow_pull() {
    for micros in [0, 100, 1000, 3000] {
        let mut server = Server::start();
        let [mut origin] = engines();
        let mut first = origin.call::<Double>(&server.address, &1, LONG).unwrap();
        drive(&mut [&mut origin], || first.try_take()).unwrap();
        let mut calls: Vec<_> = (0..8)
            .map(|_| {
                origin
                    .call::<Echo>(&server.address, &vec![1; 4 << 20], LONG)
                    .unwrap()
            })
            .collect();
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(micros) {
            origin.progress();
        }
        server.child.kill().unwrap();
        let mut died = 0;
        drive(&mut [&mut origin], || {
            calls.retain_mut(|call| match call.try_take() {
                None => true,
                Some(Ok(_)) => false,
                Some(Err(CallError::PeerDied { .. })) => {
                    died += 1;
                    false
                }
                Some(Err(other)) => panic!("{other:?}"),
            });
            calls.is_empty().then_some(())
        });
        assert!(died > 0 && start.elapsed() < LONG / 2, "{died} died");
        assert_eq!(origin.in_progress(), InProgress::default());
    }
}

/// A process that is killed while its memory is pulled, in one piece and in chunks, and pushed to, ends the
/// transfers at once, and nothing stays of them.
fn target_dies_in_a_bulk_transfer_of_either_direction() {
    fn end<T>(origin: &mut Engine, mut transfer: Transfer<T>) -> Result<(), TransferError> {
        drive(&mut [origin], || transfer.try_take()).map(drop)
    }
    let mut died = 0;
    for micros in [0, 300, 3000] {
        let mut server = Server::start();
        let [mut origin] = engines();
        let mut shown = origin.call::<Shown>(&server.address, &(), LONG).unwrap();
        let memory = drive(&mut [&mut origin], || shown.try_take()).unwrap();
        let pull = origin.pull_bulk(&memory, 0, Buffer::zeroed(BULK), LONG).unwrap();
        let push = origin
            .push_bulk(&memory, 0, Bytes::from(vec![4; BULK]), LONG)
            .unwrap();
        let all = 0..memory.len();
        let mut chunks = origin
            .pull_pipelined(&memory, all, Pipeline::default(), LONG)
            .unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(micros) {
            origin.progress();
        }
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        let mut results = vec![end(&mut origin, pull), end(&mut origin, push)];
        drive(&mut [&mut origin], || {
            while let Some(chunk) = chunks.try_next() {
                results.push(chunk.map(drop));
            }
            chunks.is_finished().then_some(())
        });
        for result in results {
            match result {
                Ok(()) => {}
                Err(TransferError::PeerDied { .. }) => died += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(start.elapsed() < LONG / 2);
        assert_eq!(origin.in_progress(), InProgress::default());
    }
    assert!(died > 0, "all were done before");
}

/// A handle goes through a second process to a third, which pulls from the one that shows the memory; three real
/// processes.
fn handle_forwarded_to_a_third_process() {
    let third = Server::start();
    let second = Server::start_at(None, Some(&third.address));
    let [mut origin] = engines();
    let segments = vec![Bytes::from(vec![1; 100_000]), Bytes::from(vec![2; 3 << 20])];
    let expected = 100_000 + 2 * (3 << 20);
    let handle = origin.expose_segments(segments).unwrap();
    for slice in [handle.clone(), handle.slice(50_000..100_010).unwrap()] {
        let expected = match slice == handle {
            true => expected,
            false => 50_020,
        };
        let mut call = origin.call::<Relayed>(&second.address, &slice, LONG).unwrap();
        let sum = drive(&mut [&mut origin], || call.try_take());
        assert_eq!(sum.unwrap(), expected);
    }
    // Withdrawn at its origin it is of no use to the third.
    origin.withdraw_bulk(&handle);
    let mut call = origin.call::<Relayed>(&second.address, &handle, LONG).unwrap();
    let refused = drive(&mut [&mut origin], || call.try_take());
    assert!(matches!(refused, Err(CallError::Fault { .. })), "{refused:?}");
}

/// Calls that may be tried again outlive servers that are killed, one after the other, under the load of several
/// threads, as soon as another one serves at the same address.
fn server_restarted_on_the_same_address() {
    let mut server = Server::start();
    let address = server.address.clone();
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
            server = Server::start_at(Some(&address), None);
            assert_eq!(server.address, address);
        }
        for caller in callers {
            assert!(caller.join().unwrap() > 0);
        }
    });
    assert!(
        handle
            .with_blocking(|engine| engine.metrics().calls.retries, LONG)
            .unwrap()
            > 0
    );
}
