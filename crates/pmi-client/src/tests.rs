use std::{
    io::{self, Read, Write},
    net::Shutdown,
    sync::{Arc, Barrier},
    thread,
};

use super::*;
use ropewalk_pmi::{Action, ConnectionId, GroupId, GroupOptions, Peer, Process, Server};

/// A process manager of so many processes, and its processes' ends of the connections.
fn job(size: u32) -> (thread::JoinHandle<()>, Vec<UnixStream>) {
    let pairs = (0..size).map(|_| UnixStream::pair().unwrap());
    let (clients, servers): (Vec<_>, Vec<_>) = pairs.unzip();
    (thread::spawn(move || serve(servers)), clients)
}

fn serve(sockets: Vec<UnixStream>) {
    let mut server = Server::root();
    let group = GroupId(0);
    server.add_group(GroupOptions::one_host(group, "kvs", sockets.len() as u32));
    let (sender, receiver) = std::sync::mpsc::channel();
    for (rank, socket) in (0..).zip(&sockets) {
        server.open(ConnectionId(rank.into()), Peer::Process(Process { group, rank }));
        let (sender, mut socket) = (sender.clone(), socket.try_clone().unwrap());
        thread::spawn(move || {
            let mut bytes = [0; 7];
            while let Ok(length @ 1..) = socket.read(&mut bytes) {
                let _ = sender.send((rank, bytes[..length].to_vec()));
            }
        });
    }
    drop(sender);
    for (rank, bytes) in receiver {
        server.handle_bytes(ConnectionId(rank.into()), &bytes);
        while let Some(action) = server.poll_action() {
            match action {
                Action::Send { connection, bytes } => {
                    (&sockets[connection.0 as usize]).write_all(&bytes).unwrap();
                }
                Action::Close { connection } => {
                    sockets[connection.0 as usize].shutdown(Shutdown::Both).unwrap();
                }
                Action::FenceBegan { .. } | Action::FenceEnded { .. } | Action::Overwritten { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Four clients, two of each dialect, exchange values of any kind, and one of them asks for what nobody put.
#[test]
fn clients_meet_over_our_server() {
    let (server, sockets) = job(4);
    let values = ["with space", "a=b;c%d\\", "", "=\n\0"];
    let clients: Vec<_> = (0..)
        .zip(sockets)
        .map(|(rank, socket)| {
            thread::spawn(move || {
                let dialect = [Dialect::Pmi1, Dialect::Pmi2][rank as usize % 2];
                let client = Client::speaking(socket, rank, 4, dialect).unwrap();
                assert_eq!(client.is_pipelining(), dialect == Dialect::Pmi2);
                assert_eq!(
                    (client.rank(), client.size(), client.kvsname()),
                    (rank, 4, &b"kvs"[..])
                );
                client.put(&format!("key-{rank}"), values[rank as usize]).unwrap();
                client.fence().unwrap();
                for (next, value) in values.into_iter().enumerate() {
                    let found = client.get(&format!("key-{next}")).unwrap();
                    assert_eq!(found.as_deref(), Some(value), "{rank}");
                }
                assert_eq!(client.get("nothing").unwrap(), None);
                // Values that need no more room than they have may be as long as the limit.
                let longest = " ;=%".repeat(client.value_size_max() / 4);
                client.put(&format!("longest-{rank}"), &longest).unwrap();
                assert_eq!(client.get(&format!("longest-{rank}")).unwrap(), Some(longest));
                assert_eq!(client.appnum().unwrap(), 0);
                assert_eq!(client.universe_size().unwrap(), None);
                let mapping = client.job_attribute("PMI_process_mapping").unwrap();
                assert_eq!(mapping, Some(b"(vector,(0,1,4))".to_vec()));
                let service = format!("service {rank}");
                client.publish(service.as_bytes(), b"tag#0$a b$").unwrap();
                assert!(client.publish(service.as_bytes(), b"another").is_err());
                assert_eq!(
                    client.lookup(service.as_bytes()).unwrap(),
                    Some(b"tag#0$a b$".to_vec())
                );
                client.unpublish(service.as_bytes()).unwrap();
                assert!(client.unpublish(service.as_bytes()).is_err());
                assert_eq!(client.lookup(service.as_bytes()).unwrap(), None);
                client.finalize().unwrap();
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    server.join().unwrap();
}

/// Many pairs are put and got at once, in either dialect, more of them than are under way together.
#[test]
fn many_pairs_go_together() {
    for dialect in [Dialect::Pmi1, Dialect::Pmi2] {
        let (server, mut sockets) = job(1);
        let client = Client::speaking(sockets.remove(0), 0, 1, dialect).unwrap();
        let pairs: Vec<_> = (0..300)
            .map(|key| (format!("k{key}"), format!("v {key};")))
            .collect();
        client.put_all(&pairs).unwrap();
        let keys: Vec<_> = pairs
            .iter()
            .map(|(key, _)| key.as_str())
            .chain(["none"])
            .collect();
        let values = client.get_all(&keys).unwrap();
        for ((_, value), found) in pairs.iter().zip(&values) {
            assert_eq!(found.as_deref(), Some(value.as_bytes()));
        }
        assert_eq!(values[300], None);
        client.finalize().unwrap();
        server.join().unwrap();
    }
}

/// Many threads ask at once over one connection, in either dialect, and each gets its own answer; one that waits
/// does not keep the others.
#[test]
fn threads_share_a_connection() {
    for dialect in [Dialect::Pmi1, Dialect::Pmi2] {
        let (server, mut sockets) = job(1);
        let client = Arc::new(Client::speaking(sockets.remove(0), 0, 1, dialect).unwrap());
        let waiting = (dialect == Dialect::Pmi2).then(|| {
            let client = client.clone();
            thread::spawn(move || client.node_attribute("late", true).unwrap())
        });
        let start = Arc::new(Barrier::new(8));
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let (client, start) = (client.clone(), start.clone());
                thread::spawn(move || {
                    start.wait();
                    for turn in 0..200 {
                        let key = format!("{thread}-{}", turn % 10);
                        let value = format!("{thread} {turn}");
                        client.put(&key, &value).unwrap();
                        assert_eq!(client.get(&key).unwrap(), Some(value));
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        if let Some(waiting) = waiting {
            client.put_node_attribute("late", b"v w").unwrap();
            assert_eq!(waiting.join().unwrap(), Some(b"v w".to_vec()));
        }
        client.finalize().unwrap();
        server.join().unwrap();
    }
}

/// Some threads look for their answers and others sleep: none is left behind, however irregularly the answers
/// come.
#[test]
fn irregular_answers_reach_all_threads() {
    const PAUSES: [u64; 7] = [0, 0, 5, 200, 0, 1000, 2000];
    let (server, mut sockets) = job(1);
    let (client, between) = UnixStream::pair().unwrap();
    let beyond = sockets.remove(0);
    let [mut asked, mut asking] = [&between, &beyond].map(|end| end.try_clone().unwrap());
    let requests = thread::spawn(move || {
        io::copy(&mut asked, &mut asking).unwrap();
        asking.shutdown(Shutdown::Write).unwrap();
    });
    let answers = thread::spawn(move || {
        let mut bytes = [0; 200];
        for pause in PAUSES.into_iter().cycle() {
            let length = (&beyond).read(&mut bytes).unwrap();
            if length == 0 {
                return;
            }
            thread::sleep(Duration::from_micros(pause));
            (&between).write_all(&bytes[..length]).unwrap();
        }
    });
    let client = Client::speaking(client, 0, 1, Dialect::Pmi2).unwrap();
    client.set_timeout(Duration::from_secs(10));
    // Who is done does not ask again, and so leaves the others to themselves.
    for turn in 0..40 {
        thread::scope(|scope| {
            for thread in 0..8 {
                let client = &client;
                scope.spawn(move || {
                    let (key, value) = (format!("{thread}"), format!("{turn}"));
                    client.put(&key, &value).unwrap();
                    assert_eq!(client.get(&key).unwrap(), Some(value));
                });
            }
        });
    }
    client.finalize().unwrap();
    drop(client);
    for thread in [server, requests, answers] {
        thread.join().unwrap();
    }
}

fn greeted() -> (Client, UnixStream) {
    let (client, server) = UnixStream::pair().unwrap();
    let answering = server.try_clone().unwrap();
    let greeting = thread::spawn(move || {
        let mut bytes = [0; 100];
        // As a process manager that is not ours.
        for answer in [
            &b"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"[..],
            b"cmd=my_kvsname kvsname=k\n",
        ] {
            assert!((&answering).read(&mut bytes).unwrap() > 0);
            (&answering).write_all(answer).unwrap();
        }
    });
    let client = Client::new(client, 0, 2).unwrap();
    greeting.join().unwrap();
    (client, server)
}

/// A process manager that says nothing is an error by the deadline; one that goes away is one at once.
#[test]
fn silence_and_absence_are_errors() {
    let (client, server) = greeted();
    client.set_timeout(Duration::from_millis(20));
    let late = client.fence();
    assert!(
        matches!(
            late,
            Err(ClientError::Timeout {
                command: "barrier_in",
                ..
            })
        ),
        "{late:?}"
    );
    drop(server);
    assert!(matches!(client.get("key"), Err(ClientError::Closed)));
}

/// An answer that comes too late is not taken for the one to the next request.
#[test]
fn late_answers_are_nobodys() {
    let (client, server) = greeted();
    client.set_timeout(Duration::from_millis(20));
    assert!(matches!(client.get("first"), Err(ClientError::Timeout { .. })));
    // Whether it still arrives does not matter.
    let _ = (&server).write_all(b"cmd=get_result rc=0 value=of-the-first\n");
    assert!(matches!(client.get("second"), Err(ClientError::Closed)));
}

/// When the process manager goes away, all threads that wait are told, whoever of them reads.
#[test]
fn all_threads_hear_of_the_end() {
    let (client, server) = greeted();
    let client = Arc::new(client);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            thread::spawn(move || client.get("key"))
        })
        .collect();
    let mut bytes = [0; 1];
    let _ = (&server).read(&mut bytes).unwrap();
    drop(server);
    for thread in threads {
        assert!(matches!(thread.join().unwrap(), Err(ClientError::Closed)));
    }
}

/// Keys travel as they are, so those that some managers lose are refused, as is what is too long.
#[test]
fn keys_are_plain() {
    for key in ["a;b", "a b", "a\nb", "=a", "", "ä", "a\\b", &"k".repeat(64)] {
        assert!(
            matches!(check_key(key.as_bytes()), Err(ClientError::Text { .. })),
            "{key:?}"
        );
    }
    assert!(check_key(b"-bcast-1-0").is_ok());
    let (client, _server) = greeted();
    let long = "x".repeat(675);
    assert!(matches!(client.put("k", &long), Err(ClientError::Text { .. })));
}
