//! How two processes prove to each other that they belong to the same job, before anything else is parsed.
//!
//! ```text
//! initiator                                    responder
//!     greeting (job, version, identity,
//!               address, nonce)         ->
//!                                       <-     greeting, proof of the responder
//!     proof of the initiator            ->
//! ```
//!
//! A proof is HMAC-SHA256 under the job's key over the prover's part in the handshake and both greetings.
//! Both nonces are under it, so that it is of no use in another connection; so is the part, so that it cannot
//! be reflected; and the initiator checks that who answers has the address it called, so that its own
//! greeting cannot be relayed back to itself.
//!
//! Magic and version come first in each greeting, whatever the version. A responder that is called in another version
//! answers with these alone and drops the connection.
//!
//! A proof shows that the other side is a member, not which one: all members share the key, and each is
//! trusted to say its own identity and address.
//!
//! Each side reads at most [`HANDSHAKE_SIZE_MAX`] bytes.

use bytes::{Buf, BufMut};
use hmac::{Hmac, KeyInit, Mac};
use ropewalk_group::{Incarnation, JobId, Rank};
use sha2::Sha256;
use thiserror::Error;

use crate::{Address, Identity, JobKey, Peer, Role};

/// The version of the handshake and of the frames after it.
pub(crate) const VERSION: u16 = 1;

/// The most bytes that either side of a handshake sends.
pub(crate) const HANDSHAKE_SIZE_MAX: usize = GREETING_SIZE_MAX + PROOF_SIZE;

const MAGIC: [u8; 8] = *b"ropewalk";
const VERSION_SIZE: usize = 2;
const NONCE_SIZE: usize = 32;
const PROOF_SIZE: usize = 32;
/// Magic, version, job, role, rank, incarnation, instance, nonce, length of the address.
const FIXED_SIZE: usize = 8 + VERSION_SIZE + 16 + 1 + 4 + 4 + 8 + NONCE_SIZE + 1;
const ADDRESS_SIZE_MAX: usize = 128;
const GREETING_SIZE_MAX: usize = FIXED_SIZE + ADDRESS_SIZE_MAX;
const _: () = assert!(HANDSHAKE_SIZE_MAX <= 256);

/// What an endpoint says of itself in each of its handshakes.
#[derive(Clone, Debug)]
pub(crate) struct Introduction {
    pub(crate) job: JobId,
    pub(crate) key: JobKey,
    pub(crate) peer: Peer,
}

/// One side of one handshake. Feed it what comes with [`handle_bytes`](Self::handle_bytes); send what it
/// says.
#[derive(Debug)]
pub(crate) struct Handshake {
    introduction: Introduction,
    own_greeting: Vec<u8>,
    received: Vec<u8>,
    part: Part,
}

#[derive(Debug)]
enum Part {
    /// It called this address and expects greeting and proof.
    Initiator { called: Address },
    /// It expects a greeting.
    Responder,
    /// It has answered this greeting and expects this proof.
    ResponderWaiting { peer: Peer, proof: [u8; 32] },
}

/// What came of the bytes so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// To be sent.
    pub(crate) reply: Vec<u8>,
    /// The peer, once it has proven itself.
    pub(crate) proven: Option<Peer>,
    /// How many of the bytes belonged to the handshake.
    pub(crate) consumed: usize,
}

impl Handshake {
    /// The side that connects, and what it sends first. `nonce` must be random.
    pub(crate) fn initiate(introduction: Introduction, called: Address, nonce: [u8; 32]) -> (Self, Vec<u8>) {
        let handshake = Self::new(introduction, Part::Initiator { called }, nonce);
        let greeting = handshake.own_greeting.clone();
        (handshake, greeting)
    }

    /// The side that was connected to. `nonce` must be random.
    pub(crate) fn respond(introduction: Introduction, nonce: [u8; 32]) -> Self {
        Self::new(introduction, Part::Responder, nonce)
    }

    fn new(introduction: Introduction, part: Part, nonce: [u8; 32]) -> Self {
        Self {
            own_greeting: encode_greeting(&introduction, nonce),
            introduction,
            received: Vec::new(),
            part,
        }
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// As soon as it is clear that the peer is none; the connection is then to be dropped without a word.
    pub(crate) fn handle_bytes(&mut self, bytes: &[u8]) -> Result<Step, HandshakeError> {
        let mut step = Step {
            reply: Vec::new(),
            proven: None,
            consumed: 0,
        };
        while step.proven.is_none() {
            let needed = self.needed()? - self.received.len();
            let next = &bytes[step.consumed..];
            let next = &next[..next.len().min(needed)];
            step.consumed += next.len();
            self.received.extend_from_slice(next);
            if next.len() < needed {
                break;
            }
            if self.needed()? == self.received.len() {
                self.advance(&mut step)?;
            }
        }
        Ok(step)
    }

    /// What is said to one that is dropped because of `error`, if anything: who was called by a peer of another version
    /// tells its own, so that the peer knows what is wrong.
    pub(crate) fn farewell(&self, error: &HandshakeError) -> Option<&[u8]> {
        let called = !matches!(self.part, Part::Initiator { .. });
        let other_version = matches!(error, HandshakeError::Version { .. });
        (called && other_version).then(|| &self.own_greeting[..MAGIC.len() + VERSION_SIZE])
    }

    /// How many bytes it may take next without taking more than belongs to it; at least one.
    pub(crate) fn wanted(&self) -> usize {
        let needed = self.needed().unwrap_or(0);
        needed.saturating_sub(self.received.len()).max(1)
    }

    /// How many bytes are to be received in all before the next thing can be decided.
    fn needed(&self) -> Result<usize, HandshakeError> {
        if let Part::ResponderWaiting { .. } = self.part {
            return Ok(PROOF_SIZE);
        }
        // A stranger that speaks something else is found at its first wrong byte.
        let magic = self.received.len().min(MAGIC.len());
        if self.received[..magic] != MAGIC[..magic] {
            return Err(HandshakeError::Foreign);
        }
        // So is a peer of another version, whose greeting may go on otherwise.
        if let Some(version) = self.received[magic..].first_chunk() {
            let version = u16::from_le_bytes(*version);
            if version != VERSION {
                return Err(HandshakeError::Version { version });
            }
        }
        let Some(&address_size) = self.received.get(FIXED_SIZE - 1) else {
            return Ok(match self.received.len() {
                length if length < MAGIC.len() => magic + 1,
                length if length < MAGIC.len() + VERSION_SIZE => MAGIC.len() + VERSION_SIZE,
                _ => FIXED_SIZE,
            });
        };
        if usize::from(address_size) > ADDRESS_SIZE_MAX {
            return Err(HandshakeError::Foreign);
        }
        let greeting = FIXED_SIZE + usize::from(address_size);
        Ok(match self.part {
            Part::Initiator { .. } => greeting + PROOF_SIZE,
            _ => greeting,
        })
    }

    fn advance(&mut self, step: &mut Step) -> Result<(), HandshakeError> {
        match &self.part {
            Part::Initiator { called } => {
                let (greeting, proof) = self.received.split_at(self.received.len() - PROOF_SIZE);
                let peer = decode_greeting(greeting, self.introduction.job)?;
                self.mac(Side::Responder, &self.own_greeting, greeting)
                    .verify_slice(proof)
                    .map_err(|_| HandshakeError::Proof)?;
                if peer.address != *called {
                    return Err(HandshakeError::Address {
                        address: peer.address,
                    });
                }
                step.reply = self.proof(Side::Initiator, &self.own_greeting, greeting).to_vec();
                step.proven = Some(peer);
            }
            Part::Responder => {
                let peer = decode_greeting(&self.received, self.introduction.job)?;
                step.reply = self.own_greeting.clone();
                step.reply
                    .extend(self.proof(Side::Responder, &self.received, &self.own_greeting));
                let proof = self.proof(Side::Initiator, &self.received, &self.own_greeting);
                self.part = Part::ResponderWaiting { peer, proof };
                self.received.clear();
            }
            Part::ResponderWaiting { peer, proof } => {
                if !bool::from(subtle::ConstantTimeEq::ct_eq(&proof[..], &self.received[..])) {
                    return Err(HandshakeError::Proof);
                }
                step.proven = Some(peer.clone());
            }
        }
        Ok(())
    }

    fn proof(&self, prover: Side, initiator: &[u8], responder: &[u8]) -> [u8; PROOF_SIZE] {
        self.mac(prover, initiator, responder)
            .finalize()
            .into_bytes()
            .into()
    }

    fn mac(&self, prover: Side, initiator: &[u8], responder: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.introduction.key.as_bytes())
            .expect("HMAC takes a key of any length");
        mac.update(match prover {
            Side::Initiator => b"ropewalk initiator",
            Side::Responder => b"ropewalk responder",
        });
        // A greeting contains its own length, so that the two cannot be divided differently.
        mac.update(initiator);
        mac.update(responder);
        mac
    }
}

#[derive(Clone, Copy)]
enum Side {
    Initiator,
    Responder,
}

fn encode_greeting(introduction: &Introduction, nonce: [u8; NONCE_SIZE]) -> Vec<u8> {
    let Peer {
        address,
        identity,
        instance,
    } = &introduction.peer;
    let address = address.to_string();
    let mut bytes = Vec::with_capacity(FIXED_SIZE + address.len());
    bytes.put_slice(&MAGIC);
    bytes.put_u16_le(VERSION);
    bytes.put_slice(&introduction.job.0);
    bytes.put_u8(match identity.role {
        Role::Agent => 0,
        Role::Launcher => 1,
        Role::Rank => 2,
    });
    bytes.put_u32_le(identity.rank.0);
    bytes.put_u32_le(identity.incarnation.0);
    bytes.put_u64_le(*instance);
    bytes.put_slice(&nonce);
    let address_size = u8::try_from(address.len()).unwrap_or(u8::MAX);
    assert!(
        usize::from(address_size) <= ADDRESS_SIZE_MAX,
        "the address of an endpoint is an IP address and a port, not {address}"
    );
    bytes.put_u8(address_size);
    bytes.put_slice(address.as_bytes());
    bytes
}

/// What a whole greeting says, whether it is true or not.
fn decode_greeting(bytes: &[u8], job: JobId) -> Result<Peer, HandshakeError> {
    let mut at = &bytes[MAGIC.len()..];
    let version = at.get_u16_le();
    if version != VERSION {
        return Err(HandshakeError::Version { version });
    }
    let mut their_job = JobId([0; 16]);
    at.copy_to_slice(&mut their_job.0);
    if their_job != job {
        return Err(HandshakeError::Job { job: their_job });
    }
    let role = match at.get_u8() {
        0 => Role::Agent,
        1 => Role::Launcher,
        2 => Role::Rank,
        _ => return Err(HandshakeError::Foreign),
    };
    let rank = Rank(at.get_u32_le());
    let incarnation = Incarnation(at.get_u32_le());
    let instance = at.get_u64_le();
    at.advance(NONCE_SIZE + 1);
    let address = std::str::from_utf8(at).map_err(|_| HandshakeError::Foreign)?;
    let address = address.parse().map_err(|_| HandshakeError::Foreign)?;
    let identity = Identity {
        role,
        rank,
        incarnation,
    };
    Ok(Peer {
        address,
        identity,
        instance,
    })
}

/// Why a process at the other end is no peer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// It is another endpoint than the one called.
    #[error("{address} answered in its place")]
    Address {
        /// Where the one that answered says it is.
        address: Address,
    },
    /// It speaks something else.
    #[error("it does not speak ropewalk's protocol")]
    Foreign,
    /// It belongs to another job.
    #[error("it belongs to job {job}")]
    Job {
        /// Which.
        job: JobId,
    },
    /// It does not know the job's key.
    #[error("it does not know the job's key")]
    Proof,
    /// It closed the connection instead of proving itself.
    #[error(
        "it dropped the connection during the handshake, as one does that is of another job or version, or \
             full"
    )]
    Refused,
    /// It took too long.
    #[error("it did not say anything in time")]
    Silent,
    /// It speaks another version of the protocol.
    #[error("it speaks version {version} of the protocol, this is version {}", VERSION)]
    Version {
        /// Which.
        version: u16,
    },
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn introduction(rank: u32) -> Introduction {
        Introduction {
            job: JobId([1; 16]),
            key: JobKey::from_bytes([2; 32]),
            peer: Peer {
                address: format!("tcp://127.0.0.1:{}", 1000 + rank).parse().unwrap(),
                identity: Identity {
                    role: Role::Rank,
                    rank: Rank(rank),
                    incarnation: Incarnation(3),
                },
                instance: 40 + u64::from(rank),
            },
        }
    }

    fn responder() -> Handshake {
        Handshake::respond(introduction(1), [8; 32])
    }

    fn initiate(introduction: Introduction) -> (Handshake, Vec<u8>) {
        Handshake::initiate(introduction, introduction_address(1), [7; 32])
    }

    fn introduction_address(rank: u32) -> Address {
        introduction(rank).peer.address
    }

    /// Feeds `bytes` cut into pieces of `size`; what came of it, in all.
    fn feed(handshake: &mut Handshake, bytes: &[u8], size: usize) -> Result<Step, HandshakeError> {
        let mut all = Step {
            reply: vec![],
            proven: None,
            consumed: 0,
        };
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
        fn members_prove_themselves(size in 1usize..300, rest in vec(any::<u8>(), 0..50)) {
            let (mut initiator, greeting) = initiate(introduction(0));
            let mut responder = responder();
            let answer = feed(&mut responder, &greeting, size).unwrap();
            prop_assert!(answer.proven.is_none() && answer.reply.len() <= HANDSHAKE_SIZE_MAX);
            let end = feed(&mut initiator, &answer.reply, size).unwrap();
            prop_assert_eq!(end.proven, Some(introduction(1).peer));
            prop_assert!(greeting.len() + end.reply.len() <= HANDSHAKE_SIZE_MAX);
            let last = feed(&mut responder, &[end.reply.clone(), rest].concat(), size).unwrap();
            prop_assert_eq!(last.proven, Some(introduction(0).peer));
            prop_assert_eq!(last.consumed, end.reply.len());
        }

        /// Garbage proves nothing and does no harm, on either side and also after a good beginning.
        #[test]
        fn garbage_proves_nothing(bytes in vec(any::<u8>(), 0..400), good in 0usize..120, size in 1usize..50) {
            let (initiator, greeting) = initiate(introduction(0));
            let bytes = [&greeting[..good.min(greeting.len())], &bytes].concat();
            for mut side in [initiator, responder()] {
                if let Ok(step) = feed(&mut side, &bytes, size) {
                    prop_assert!(step.proven.is_none());
                }
            }
        }

        /// Whatever bit of whatever part is changed on the way, somebody notices.
        #[test]
        fn changed_bits_are_noticed(message in 0..3, at: proptest::sample::Index, bit in 0..8u32) {
            let change = |number: i32, bytes: &mut Vec<u8>| {
                if number == message {
                    let at = at.index(bytes.len());
                    bytes[at] ^= 1u8 << bit;
                }
            };
            let (mut initiator, mut greeting) = initiate(introduction(0));
            let mut responder = responder();
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
        let (mut initiator, greeting) = initiate(initiator);
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

    /// Another key, another job and an address that was not called are each found.
    #[test]
    fn strangers_are_found() {
        assert_eq!(run(introduction(0), introduction(1)), Ok(()));
        let other_key = Introduction {
            key: JobKey::from_bytes([3; 32]),
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

    /// A process that does not know the key gets nothing out of a responder that would open it the door: the
    /// responder rejects a made-up proof.
    #[test]
    fn a_made_up_proof_is_rejected() {
        let (_, greeting) = initiate(introduction(0));
        let mut responder = responder();
        responder.handle_bytes(&greeting).unwrap();
        assert_eq!(
            responder.handle_bytes(&[5; PROOF_SIZE]),
            Err(HandshakeError::Proof)
        );
    }

    /// The proof of one connection does not open another, whose nonces differ.
    #[test]
    fn proofs_cannot_be_replayed() {
        let (mut initiator, greeting) = initiate(introduction(0));
        let answer = responder().handle_bytes(&greeting).unwrap();
        let end = initiator.handle_bytes(&answer.reply).unwrap();
        let mut later = Handshake::respond(introduction(1), [9; 32]);
        later.handle_bytes(&greeting).unwrap();
        assert_eq!(later.handle_bytes(&end.reply), Err(HandshakeError::Proof));
        let (mut later, _) = Handshake::initiate(introduction(0), introduction_address(1), [6; 32]);
        assert_eq!(later.handle_bytes(&answer.reply), Err(HandshakeError::Proof));
    }

    /// What a responder sends is no proof of an initiator, and an initiator is not fooled by its own
    /// greeting, answered by itself.
    #[test]
    fn proofs_cannot_be_reflected() {
        let (_, greeting) = initiate(introduction(0));
        let mut responder = responder();
        let answer = responder.handle_bytes(&greeting).unwrap();
        let proof = &answer.reply[answer.reply.len() - PROOF_SIZE..];
        assert_eq!(responder.handle_bytes(proof), Err(HandshakeError::Proof));

        let (mut initiator, greeting) = initiate(introduction(0));
        let mut itself = Handshake::respond(introduction(0), [8; 32]);
        let answer = itself.handle_bytes(&greeting).unwrap();
        let address = introduction_address(0);
        assert_eq!(
            initiator.handle_bytes(&answer.reply),
            Err(HandshakeError::Address { address })
        );
    }

    /// Another version is named, so that the user knows what to do; other protocols are dropped at their
    /// first byte.
    #[test]
    fn other_protocols_are_told_apart() {
        let (_, mut greeting) = initiate(introduction(0));
        greeting[8..10].copy_from_slice(&7u16.to_le_bytes());
        assert_eq!(
            responder().handle_bytes(&greeting),
            Err(HandshakeError::Version { version: 7 })
        );
        assert_eq!(responder().handle_bytes(b"G"), Err(HandshakeError::Foreign));
        assert_eq!(responder().handle_bytes(b"rope\n"), Err(HandshakeError::Foreign));
    }
}
