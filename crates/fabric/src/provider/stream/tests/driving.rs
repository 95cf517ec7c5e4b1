//! The signals of an endpoint to its driver.

use super::*;
use crate::provider::frames::outbox::Outbox;

/// Each part of a transfer that comes tells its driver that more is to be expected, although only the last
/// part ends the transfer; after that, nothing does.
#[test]
fn parts_of_transfers_are_told() {
    let [mut origin, mut target] = [(); 2].map(|()| endpoint(Limits::default()));
    let region = target.expose(vec![7; 16 << 20].into());
    origin.get(&region, 0, Buffer::zeroed(16 << 20), LONG).unwrap();
    let (mut parts, mut sent) = (0, 0);
    let start = Instant::now();
    loop {
        assert!(origin.is_transferring() && start.elapsed() < LONG);
        let events = origin.progress();
        target.progress();
        sent += usize::from(target.has_moved());
        if events > 0 {
            break;
        }
        parts += usize::from(origin.has_moved());
    }
    assert!(parts > 4 && sent > 4, "{parts} and {sent}");
    assert!(!origin.is_transferring() && origin.poll_event().is_some());
    target.progress();
    origin.progress();
    assert!(!origin.has_moved() && !target.has_moved());
}

/// Of two peers that both send more than the receiver takes at once, neither has to wait until the other has nothing
/// more, whatever they send over.
#[test]
fn peers_have_turns() {
    for shm in [false, true] {
        let bind = |events_max| {
            let mut options = options();
            options.transports.shm = shm;
            options.limits.events_max = events_max;
            Endpoint::bind(options).unwrap()
        };
        let mut receiver = bind(1);
        let address = receiver.address().clone();
        let mut senders = [bind(1 << 10), bind(1 << 10)];
        let mut received = [0; 2];
        let start = Instant::now();
        // Until both are known, and then for a hundred messages.
        while received.contains(&0) || received.iter().sum::<usize>() < 100 {
            assert!(start.elapsed() < LONG, "{received:?}");
            for (tag, sender) in senders.iter_mut().enumerate() {
                while !sender.has_unsent() {
                    let body = vec![0; 60 << 10];
                    sender
                        .send_unexpected(&address, tag as u64, Bytes::from(body))
                        .unwrap();
                    sender.progress();
                }
                sender.progress();
            }
            receiver.progress();
            while let Some(Event::Unexpected { tag, .. }) = receiver.poll_event() {
                let before = received;
                received[tag as usize] += 1;
                if before.contains(&0) && !received.contains(&0) {
                    received = [1; 2];
                }
            }
        }
        assert!(received.iter().all(|&count| count > 30), "{received:?}");
    }
}

/// Who receives more messages than he takes gets what he asks for nevertheless.
#[test]
fn messages_do_not_keep_transfers_out() {
    let [mut receiver, mut sender] = [1, 1 << 10].map(|events_max| {
        let mut options = options();
        options.transports.shm = true;
        options.limits.events_max = events_max;
        Endpoint::bind(options).unwrap()
    });
    let address = receiver.address().clone();
    let region = sender.expose(vec![7; 1 << 20].into());
    let start = Instant::now();
    let (mut messages, mut transfers, mut asked) = (0, 0, false);
    while messages < 100 || transfers < 2 {
        assert!(start.elapsed() < LONG, "{messages} and {transfers}");
        while !sender.has_unsent() {
            let body = Bytes::from(vec![0; 60 << 10]);
            sender.send_unexpected(&address, 0, body).unwrap();
            sender.progress();
        }
        sender.progress();
        if messages >= 50 && !std::mem::replace(&mut asked, true) {
            for _ in 0..2 {
                receiver.get(&region, 0, Buffer::zeroed(1 << 20), LONG).unwrap();
            }
        }
        receiver.progress();
        // One at a time, so that there is always one that takes the room.
        match receiver.poll_event() {
            Some(Event::Completed { result, .. }) => transfers += usize::from(result.is_ok()),
            Some(_) => messages += 1,
            None => {}
        }
    }
}

/// A caller that wakes an endpoint that is awake, be it by the endpoint's own thread, spares it the
/// descriptor; an endpoint that is about to sleep is woken.
#[test]
fn wakers_write_to_sleepers_only() {
    let mut endpoint = endpoint(Limits::default());
    let waker = endpoint.waker();
    let is_readable = |waker: &crate::Waker| {
        let mut descriptor = [rustix::event::PollFd::new(waker, rustix::event::PollFlags::IN)];
        let at_once = rustix::event::Timespec::default();
        rustix::event::poll(&mut descriptor, Some(&at_once)).unwrap() > 0
    };
    endpoint.progress();
    waker.wake();
    assert!(!is_readable(&waker));
    assert!(endpoint.next_deadline().unwrap() <= Instant::now());
    assert_eq!((endpoint.progress(), endpoint.progress()), (1, 0));
    assert!(endpoint.next_deadline().is_none());
    waker.wake();
    assert!(is_readable(&waker));
    assert_eq!((endpoint.progress(), endpoint.progress()), (1, 0));
    assert!(!is_readable(&waker));
}

/// Of many messages the first go out while the owner still makes more, and few wait for its progress; what goes wrong
/// meanwhile is told by the next progress.
#[test]
fn many_messages_are_sent_before_the_last_is_made() {
    let mut endpoint = endpoint(Limits::default());
    let mut member = dial_in_background(&mut endpoint);
    greet(&mut member, &mut endpoint);
    let send = |endpoint: &mut Endpoint, count: usize| {
        for _ in 0..count {
            endpoint.send_unexpected(&made_up(), 7, Bytes::new()).unwrap();
        }
    };
    send(&mut endpoint, Outbox::MESSAGES_PER_SEND - 1);
    member.set_nonblocking(true).unwrap();
    assert!(member.read(&mut [0]).is_err(), "few messages wait");
    send(&mut endpoint, 1);
    member.set_nonblocking(false).unwrap();
    let mut bytes = vec![0; Outbox::MESSAGES_PER_SEND * HEADER_SIZE];
    member.read_exact(&mut bytes).unwrap();
    assert_eq!(
        bytes,
        frame(Kind::Unexpected, 7, b"").repeat(Outbox::MESSAGES_PER_SEND)
    );
    assert!(!endpoint.has_unsent());
    send(&mut endpoint, 1);
    assert!(endpoint.has_unsent(), "one message waits again");
    endpoint.progress();
    assert!(!endpoint.has_unsent());
    // What it has not read makes it a reset.
    drop(member);
    send(&mut endpoint, 4 * Outbox::MESSAGES_PER_SEND);
    death(&mut endpoint);
}
