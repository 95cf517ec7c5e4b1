//! Tests of the handshake, on both sides.

use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*};
use ropewalk_names::{Incarnation, Rank};

use super::*;
use crate::{JobKey, Role, noise::RECORD_SIZE_MAX};

fn rank(rank: u32, incarnation: u32) -> Identity {
    Identity {
        role: Role::Rank,
        rank: Rank(rank),
        incarnation: Incarnation(incarnation),
    }
}

fn key_of(identity: Identity) -> Arc<MemberKey> {
    Arc::new(JobKey::from_bytes([2; 32]).key_of(identity))
}

/// The introduction of this member, at an address of its own for each rank.
fn introduction_of(identity: Identity) -> Introduction {
    let rank = identity.rank.0;
    Introduction {
        job: JobId([1; 16]),
        key: key_of(identity),
        peer: Peer {
            address: format!("tcp://127.0.0.1:{}", 1000 + rank).parse().unwrap(),
            identity,
            instance: 40 + u64::from(rank),
        },
        fences: Fences::default(),
        encrypts: false,
    }
}

fn introduction(number: u32) -> Introduction {
    introduction_of(rank(number, 3))
}

impl Introduction {
    fn encrypting(self, encrypts: bool) -> Self {
        Self { encrypts, ..self }
    }
}

/// One member says that it is another.
fn impostor(member: Identity, claimed: Identity) -> Introduction {
    Introduction {
        key: key_of(member),
        ..introduction_of(claimed)
    }
}

fn responder(encrypts: bool) -> Handshake {
    Handshake::respond(introduction(1).encrypting(encrypts), [8; 32])
}

fn initiate(introduction: Introduction) -> (Handshake, Vec<u8>) {
    Handshake::initiate(introduction, introduction_address(1), [7; 32])
}

fn initiator(encrypts: bool) -> (Handshake, Vec<u8>) {
    initiate(introduction(0).encrypting(encrypts))
}

fn introduction_address(rank: u32) -> Address {
    introduction(rank).peer.address
}

/// Feeds `bytes` cut into pieces of `size`; what came of it, in all.
fn feed(handshake: &mut Handshake, bytes: &[u8], size: usize) -> Result<Step, HandshakeError> {
    let mut all = Step::default();
    for piece in bytes.chunks(size) {
        let step = handshake.handle_bytes(piece)?;
        all.reply.extend(step.reply);
        all.consumed += step.consumed;
        all.proven = step.proven;
        if all.proven.is_some() {
            break;
        }
    }
    Ok(all)
}

proptest! {
    /// Two members prove themselves to each other, wherever the stream is cut, and what follows the
    /// handshake is left alone.
    #[test]
    fn members_prove_themselves(encrypts: bool, size in 1usize..300, rest in vec(any::<u8>(), 0..50)) {
        let (mut initiator, greeting) = initiator(encrypts);
        let mut responder = responder(encrypts);
        let answer = feed(&mut responder, &greeting, size).unwrap();
        prop_assert!(answer.proven.is_none() && answer.reply.len() <= HANDSHAKE_SIZE_MAX);
        let end = feed(&mut initiator, &answer.reply, size).unwrap();
        prop_assert_eq!(end.proven, Some(introduction(1).peer));
        prop_assert!(greeting.len() + end.reply.len() <= HANDSHAKE_SIZE_MAX);
        let last = feed(&mut responder, &[end.reply.clone(), rest].concat(), size).unwrap();
        prop_assert_eq!(last.proven, Some(introduction(0).peer));
        prop_assert_eq!(last.consumed, end.reply.len());
        prop_assert_eq!(initiator.take_records().is_some(), encrypts);
        prop_assert_eq!(responder.take_records().is_some(), encrypts);
    }

    /// Garbage proves nothing and does no harm, on either side and also after a good beginning.
    #[test]
    fn garbage_proves_nothing(
        encrypts: bool,
        bytes in vec(any::<u8>(), 0..400),
        good in 0usize..120,
        size in 1usize..50,
    ) {
        let (initiator, greeting) = initiator(encrypts);
        let bytes = [&greeting[..good.min(greeting.len())], &bytes].concat();
        for mut side in [initiator, responder(encrypts)] {
            if let Ok(step) = feed(&mut side, &bytes, size) {
                prop_assert!(step.proven.is_none());
            }
        }
    }

    /// Whatever bit of whatever part is changed on the way, somebody notices.
    #[test]
    fn changed_bits_are_noticed(
        encrypts: bool,
        message in 0..3,
        at: proptest::sample::Index,
        bit in 0..8u32,
    ) {
        let change = |number: i32, bytes: &mut Vec<u8>| {
            if number == message {
                let at = at.index(bytes.len());
                bytes[at] ^= 1u8 << bit;
            }
        };
        let (mut initiator, mut greeting) = initiator(encrypts);
        let mut responder = responder(encrypts);
        change(0, &mut greeting);
        let Ok(mut answer) = responder.handle_bytes(&greeting) else {
            return Ok(());
        };
        change(1, &mut answer.reply);
        let Ok(mut end) = initiator.handle_bytes(&answer.reply) else {
            return Ok(());
        };
        change(2, &mut end.reply);
        let last = responder.handle_bytes(&end.reply);
        prop_assert!(last.is_err() || last.unwrap().proven.is_none());
    }
}

fn run(initiator: Introduction, responder: Introduction) -> Result<(), (&'static str, HandshakeError)> {
    run_to(initiator, responder, introduction_address(1))
}

/// A whole handshake, and who finds what wrong, if the initiator has called this address.
fn run_to(
    initiator: Introduction,
    responder: Introduction,
    called: Address,
) -> Result<(), (&'static str, HandshakeError)> {
    let (mut initiator, greeting) = Handshake::initiate(initiator, called, [7; 32]);
    let mut responder = Handshake::respond(responder, [8; 32]);
    let answer = responder
        .handle_bytes(&greeting)
        .map_err(|error| ("responder", error))?;
    let end = initiator
        .handle_bytes(&answer.reply)
        .map_err(|error| ("initiator", error))?;
    let last = responder
        .handle_bytes(&end.reply)
        .map_err(|error| ("responder", error))?;
    assert!(last.proven.is_some());
    Ok(())
}

/// The key of another job, another job and an address that was not called are each found.
#[test]
fn strangers_are_found() {
    for encrypts in [false, true] {
        let introduction = |number| introduction(number).encrypting(encrypts);
        assert_eq!(run(introduction(0), introduction(1)), Ok(()));
        let other_key = Introduction {
            key: Arc::new(JobKey::from_bytes([3; 32]).key_of(rank(1, 3))),
            ..introduction(1)
        };
        assert_eq!(
            run(introduction(0), other_key),
            Err(("initiator", HandshakeError::Proof))
        );
        let job = JobId([9; 16]);
        let other_job = Introduction {
            job,
            ..introduction(0)
        };
        assert_eq!(
            run(other_job, introduction(1)),
            Err(("responder", HandshakeError::Job { job }))
        );
        let address = introduction_address(2);
        assert_eq!(
            run(introduction(0), introduction(2)),
            Err(("initiator", HandshakeError::Address { address }))
        );
    }
}

/// A process that does not know the key gets nothing out of a responder that would open it the door: the
/// responder rejects a made-up proof.
#[test]
fn a_made_up_proof_is_rejected() {
    for encrypts in [false, true] {
        let (_, greeting) = initiator(encrypts);
        let mut responder = responder(encrypts);
        responder.handle_bytes(&greeting).unwrap();
        assert_eq!(
            responder.handle_bytes(&[5; ANSWER_SIZE]),
            Err(HandshakeError::Proof)
        );
    }
}

/// The proof of one connection does not open another, whose nonces differ.
#[test]
fn proofs_cannot_be_replayed() {
    for encrypts in [false, true] {
        let introduction = |number| introduction(number).encrypting(encrypts);
        let (mut initiator, greeting) = initiator(encrypts);
        let answer = responder(encrypts).handle_bytes(&greeting).unwrap();
        let end = initiator.handle_bytes(&answer.reply).unwrap();
        let mut later = Handshake::respond(introduction(1), [9; 32]);
        later.handle_bytes(&greeting).unwrap();
        assert_eq!(later.handle_bytes(&end.reply), Err(HandshakeError::Proof));
        let (mut later, _) = Handshake::initiate(introduction(0), introduction_address(1), [6; 32]);
        assert_eq!(later.handle_bytes(&answer.reply), Err(HandshakeError::Proof));
    }
}

/// A responder's proof is no proof of an initiator, and an initiator is not fooled by its own greeting,
/// answered by itself.
#[test]
fn proofs_cannot_be_reflected() {
    for encrypts in [false, true] {
        let (mut initiator, greeting) = initiator(encrypts);
        let mut responder = responder(encrypts);
        let answer = responder.handle_bytes(&greeting).unwrap();
        let proof = &answer.reply[FIXED_SIZE + usize::from(answer.reply[FIXED_SIZE - 1])..];
        assert_eq!(responder.handle_bytes(proof), Err(HandshakeError::Proof));

        let itself = introduction(0).encrypting(encrypts);
        let answer = Handshake::respond(itself, [8; 32])
            .handle_bytes(&greeting)
            .unwrap();
        let address = introduction_address(0);
        assert_eq!(
            initiator.handle_bytes(&answer.reply),
            Err(HandshakeError::Address { address })
        );
    }
}

/// Another version is named, so that the user knows what to do; other protocols are dropped at their
/// first byte.
#[test]
fn other_protocols_are_told_apart() {
    let (_, mut greeting) = initiate(introduction(0));
    greeting[8..10].copy_from_slice(&7u16.to_le_bytes());
    assert_eq!(
        responder(false).handle_bytes(&greeting),
        Err(HandshakeError::Version { version: 7 })
    );
    assert_eq!(responder(false).handle_bytes(b"G"), Err(HandshakeError::Foreign));
    assert_eq!(
        responder(false).handle_bytes(b"rope\n"),
        Err(HandshakeError::Foreign)
    );
}

/// Members of all roles are let in as who they are. An agent refuses whoever claims to be a rank that it is not, and
/// nobody takes a rank for an agent or the launcher, whichever side it is on. A rank believes other ranks, and launcher
/// and agents, who have the job's key, could pose as anybody.
#[test]
fn members_prove_who_they_are() {
    let of_role = |role, number| Identity {
        role,
        ..rank(number, 0)
    };
    let agent = of_role(Role::Agent, 1);
    let members = [
        rank(0, 3),
        rank(1, 3),
        rank(1, 4),
        agent,
        of_role(Role::Launcher, 0),
    ];
    let targets = [rank(7, 0), of_role(Role::Agent, 7)];
    for (target, encrypts) in targets.map(|target| [(target, false), (target, true)]).concat() {
        for (member, claimed) in members.iter().flat_map(|a| members.iter().map(move |b| (*a, *b))) {
            let is_rank = member.role == Role::Rank;
            let is_believed = match is_rank {
                true => claimed.role == Role::Rank && target.role == Role::Rank,
                false => claimed.role != Role::Rank,
            };
            let expected = match is_believed || member == claimed {
                true => Ok(()),
                false => Err(HandshakeError::Proof),
            };
            let expected_of = |side| expected.clone().map_err(|error| (side, error));
            let claim = impostor(member, claimed).encrypting(encrypts);
            let target = introduction_of(target).encrypting(encrypts);
            let (claim_address, address) = (claim.peer.address.clone(), target.peer.address.clone());
            let called = run_to(claim.clone(), target.clone(), address);
            assert_eq!(called, expected_of("initiator"), "{member} as {claimed} calls");
            let caller = run_to(target.clone(), claim.clone(), claim_address);
            assert_eq!(
                caller,
                expected_of("initiator"),
                "{member} as {claimed} is called"
            );
            // In Noise an answer is made of what it answers.
            if !encrypts {
                assert_eq!(
                    prove_blindly(claim, target),
                    expected,
                    "{member} as {claimed} does not look at what it is answered"
                );
            }
        }
    }
}

/// An initiator that proves itself whatever it was answered.
fn prove_blindly(initiator: Introduction, responder: Introduction) -> Result<(), HandshakeError> {
    let called = responder.peer.clone();
    let key = initiator.key.clone();
    let (_, greeting) = Handshake::initiate(initiator, called.address, [7; 32]);
    let mut responder = Handshake::respond(responder, [8; 32]);
    let answer = responder.handle_bytes(&greeting)?.reply;
    let own = &answer[..answer.len() - PROOF_SIZE];
    let key = key.shared_with(called.identity);
    let proof = proof_of(&key, Said::ByInitiator, [&greeting, own]);
    assert!(responder.handle_bytes(&proof)?.proven.is_some());
    Ok(())
}

/// A fenced member is refused by name, on either side, and told so by a side that has the key. Its later
/// incarnation and others are let in.
#[test]
fn the_fenced_are_refused_by_name() {
    [false, true].into_iter().for_each(refuse_by_name);
}

fn refuse_by_name(encrypts: bool) {
    let introduction_of = |identity| introduction_of(identity).encrypting(encrypts);
    let member = introduction_of(rank(1, 0));
    member.fences.raise(rank(4, 2));
    let member = || member.clone();
    for incarnation in 0..5 {
        let identity = rank(4, incarnation);
        let fenced = |side| match incarnation <= 2 {
            true => Err((side, HandshakeError::Fenced { identity })),
            false => Ok(()),
        };
        assert_eq!(run(introduction_of(identity), member()), fenced("responder"));
        let called = introduction_of(identity);
        let address = called.peer.address.clone();
        assert_eq!(run_to(member(), called, address), fenced("initiator"));
    }
    assert_eq!(run(introduction_of(rank(5, 0)), member()), Ok(()));

    let identity = rank(4, 1);
    let (mut initiator, greeting) = initiate(introduction_of(identity));
    let mut responder = Handshake::respond(member(), [8; 32]);
    let error = responder.handle_bytes(&greeting).unwrap_err();
    let notice = responder.farewell(&error).unwrap();
    assert!(notice.len() <= HANDSHAKE_SIZE_MAX);
    assert_eq!(
        initiator.handle_bytes(notice),
        Err(HandshakeError::Fenced { identity })
    );
    assert_eq!(
        error.to_string(),
        "rank 4 (incarnation 1) is fenced: it was found to be gone, and comes back only as a later incarnation"
    );
    // Another connection is not ended by it, nor can it be made up.
    let (mut later, _) = Handshake::initiate(introduction_of(identity), introduction_address(1), [6; 32]);
    assert_eq!(later.handle_bytes(notice), Err(HandshakeError::Proof));
}

/// One that becomes known to be gone while it proves itself is not let in.
#[test]
fn fences_hold_in_the_middle_of_a_handshake() {
    for encrypts in [false, true] {
        let member = introduction(1).encrypting(encrypts);
        let fences = member.fences.clone();
        let mut responder = Handshake::respond(member, [8; 32]);
        let (mut initiator, greeting) = initiator(encrypts);
        let answer = responder.handle_bytes(&greeting).unwrap();
        let end = initiator.handle_bytes(&answer.reply).unwrap();
        let identity = rank(0, 3);
        fences.raise(identity);
        assert_eq!(
            responder.handle_bytes(&end.reply),
            Err(HandshakeError::Fenced { identity })
        );
    }
}

/// Both sides encrypt by the same keys, others for each direction and each connection.
#[test]
fn both_sides_find_the_same_keys() {
    let record_of = |records: &mut Records| {
        records.write(b"ropewalk");
        records.unsent().to_vec()
    };
    let mut seen = BTreeSet::new();
    for _ in 0..2 {
        let (mut initiator, greeting) = initiator(true);
        let mut responder = responder(true);
        let answer = responder.handle_bytes(&greeting).unwrap();
        let end = initiator.handle_bytes(&answer.reply).unwrap();
        responder.handle_bytes(&end.reply).unwrap();
        let mut sides = [&mut initiator, &mut responder].map(|side| side.take_records().unwrap());
        let records = sides.each_mut().map(|side| record_of(side));
        for (side, record) in sides.iter_mut().rev().zip(&records) {
            side.space()[..record.len()].copy_from_slice(record);
            side.handle_read(record.len());
            let mut content = [0; RECORD_SIZE_MAX];
            assert_eq!(side.poll(&mut content), Ok(Some(&b"ropewalk"[..])));
        }
        seen.extend(records);
    }
    assert_eq!(seen.len(), 4);
}

fn responder_to(greeting: &[u8]) -> Result<Step, HandshakeError> {
    responder(false).handle_bytes(greeting)
}

/// Where one side encrypts and the other does not both find that, whoever called, and nothing is proven.
#[test]
fn nobody_encrypts_alone() {
    for encrypts in [false, true] {
        let (mut initiator, greeting) = initiator(encrypts);
        let mut responder = responder(!encrypts);
        let refused = responder.handle_bytes(&greeting).unwrap_err();
        assert_eq!(refused, HandshakeError::Encryption { encrypts });
        let notice = responder.farewell(&refused).unwrap().to_vec();
        assert_eq!(
            initiator.handle_bytes(&notice),
            Err(HandshakeError::Encryption { encrypts: !encrypts })
        );
    }
}

/// Who changes on the way what the two say of encryption makes both refuse: there is no way down.
#[test]
fn nobody_is_talked_out_of_encryption() {
    let (mut caller, greeting) = initiator(true);
    let mut plain = greeting.clone();
    plain[ENCRYPTION_AT] = 0;
    // One that encrypts sees at once that the other would not.
    let mut called = responder(true);
    let refused = called.handle_bytes(&plain).unwrap_err();
    assert_eq!(refused, HandshakeError::Encryption { encrypts: false });
    let notice = called.farewell(&refused).unwrap().to_vec();
    // A proof in Noise is longer than any other.
    let padding = [0; OPENING_SIZE - PROOF_SIZE];
    let notice = [&notice[..], &padding].concat();
    assert_eq!(caller.handle_bytes(&notice), Err(HandshakeError::Proof));
    // One that does not is believed by nobody, although its answer is made to say that it does.
    let (mut caller, _) = initiator(true);
    let mut answer = [&responder_to(&plain).unwrap().reply[..], &padding].concat();
    answer[ENCRYPTION_AT] = 1;
    assert_eq!(caller.handle_bytes(&answer), Err(HandshakeError::Proof));
    // A value that means nothing is of another protocol.
    plain[ENCRYPTION_AT] = 2;
    assert_eq!(responder_to(&plain), Err(HandshakeError::Foreign));
}
