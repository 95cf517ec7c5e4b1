//! How two processes prove to each other who they are in the same job, before anything else is parsed.
//!
//! ```text
//! initiator                                    responder
//!     greeting (job, version, identity,
//!       encryption, address, nonce)     ->
//!                                       <-     greeting, proof of the responder
//!     proof of the initiator            ->
//! ```
//!
//! A proof is HMAC-SHA256 under the key that the two identities in the greetings share, over the prover's part in the
//! handshake and both greetings. Each side finds that key by [its own](MemberKey) and the other's name, without asking
//! anybody; a side with another key than that of the identity that it claims finds another one.
//! Both nonces are under the proof, so that it is of no use in another connection; so is the part, so that it cannot
//! be reflected; and the initiator checks that who answers has the address it called, so that its own
//! greeting cannot be relayed back to itself.
//!
//! A member that the membership counts as gone is fenced, and refused in that incarnation and all earlier
//! ones. A responder tells it so with its greeting and an HMAC as for a proof, for which `fence` stands in
//! the place of the part.
//!
//! Each greeting says whether its sender encrypts this connection. Both do or neither: a side that finds that the other
//! does not as it was told to refuses it, and a responder tells it so with its greeting and an HMAC for which
//! `encryption` stands in the place of the part. If both encrypt, the proofs are the two messages of a handshake of
//! [Noise](crate::noise) under the same key, whose prologue is both greetings, and records follow. The first of them
//! says whether the initiator is fenced. As proofs are over both greetings nobody on the way can change what either
//! side said.
//!
//! Magic and version come first in each greeting, whatever the version. A responder that is called in another version
//! answers with these alone and drops the connection.
//!
//! A member is trusted to say its own address: who answers there proves who it is, not that it is who was looked for.
//!
//! Each side reads at most [`HANDSHAKE_SIZE_MAX`] bytes.

use std::sync::Arc;

use bytes::{Buf, BufMut};
use hmac::Mac;
use ropewalk_names::JobId;
use subtle::ConstantTimeEq;
use thiserror::Error;

use crate::{
    Address, Identity, MemberKey, Peer,
    fences::Fences,
    member_key::{KeyedHash, SharedKey},
    noise::{ANSWER_SIZE, NoiseHandshake, OPENING_SIZE, Opening, Records},
};

/// The version of the handshake and of the frames after it.
pub(crate) const VERSION: u16 = 4;

/// The most bytes that either side of a handshake sends.
pub(crate) const HANDSHAKE_SIZE_MAX: usize = GREETING_SIZE_MAX + OPENING_SIZE;

const MAGIC: [u8; 8] = *b"ropewalk";
const VERSION_SIZE: usize = 2;
const NONCE_SIZE: usize = 32;
const PROOF_SIZE: usize = 32;
/// Magic, version, job, identity, instance, encryption, nonce, length of the address.
const FIXED_SIZE: usize = 8 + VERSION_SIZE + 16 + Identity::SIZE + 8 + 1 + NONCE_SIZE + 1;
/// Where a greeting says whether its sender encrypts.
const ENCRYPTION_AT: usize = FIXED_SIZE - 1 - NONCE_SIZE - 1;
const ADDRESS_SIZE_MAX: usize = 128;
const GREETING_SIZE_MAX: usize = FIXED_SIZE + ADDRESS_SIZE_MAX;
const _: () = assert!(HANDSHAKE_SIZE_MAX <= 256);

/// An endpoint's description of itself in each of its handshakes.
#[derive(Clone, Debug)]
pub struct Introduction {
    pub(crate) job: JobId,
    /// That of the identity in `peer`.
    pub(crate) key: Arc<MemberKey>,
    pub(crate) peer: Peer,
    pub(crate) fences: Fences,
    /// True if the traffic after the handshake is encrypted; a peer that sees this otherwise is refused.
    pub(crate) encrypts: bool,
}

/// One side of one handshake. Feed it what comes with [`handle_bytes`](Self::handle_bytes); send what it
/// says.
#[derive(Debug)]
pub struct Handshake {
    introduction: Introduction,
    own_greeting: Vec<u8>,
    received: Vec<u8>,
    /// The message that tells a peer why it is refused, if it may know.
    notice: Vec<u8>,
    /// If both sides encrypt, once the greetings are exchanged.
    noise: Option<NoiseHandshake>,
    part: Part,
}

#[derive(Debug)]
enum Part {
    /// It called this address and expects greeting and proof.
    Initiator { called: Address },
    /// It expects a greeting.
    Responder,
    /// It has answered this greeting and expects this proof, or one in Noise.
    ResponderWaiting {
        peer: Peer,
        proof: Option<[u8; PROOF_SIZE]>,
    },
}

/// The outcome of the bytes so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// To be sent.
    pub reply: Vec<u8>,
    /// The peer, once it has proven itself.
    pub proven: Option<Peer>,
    /// How many of the bytes belonged to the handshake.
    pub consumed: usize,
}

impl Handshake {
    /// The side that connects, and what it sends first. `nonce` must be random.
    pub fn initiate(introduction: Introduction, called: Address, nonce: [u8; 32]) -> (Self, Vec<u8>) {
        let handshake = Self::new(introduction, Part::Initiator { called }, nonce);
        let greeting = handshake.own_greeting.clone();
        (handshake, greeting)
    }

    /// The side that was connected to. `nonce` must be random.
    pub fn respond(introduction: Introduction, nonce: [u8; 32]) -> Self {
        Self::new(introduction, Part::Responder, nonce)
    }

    fn new(introduction: Introduction, part: Part, nonce: [u8; 32]) -> Self {
        Self {
            own_greeting: encode_greeting(&introduction, nonce),
            introduction,
            received: Vec::new(),
            notice: Vec::new(),
            noise: None,
            part,
        }
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// As soon as it is clear that the peer is none; the connection is then to be dropped without a word.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<Step, HandshakeError> {
        let mut step = Step::default();
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

    /// The records in which the frames go from now on, if both sides encrypt. To be taken once the peer has
    /// proven itself.
    pub(crate) fn take_records(&mut self) -> Option<Box<Records>> {
        self.noise.take()?.into_records()
    }

    /// The answer to a peer that is dropped because of `error`, if there is one. A side that was called by a
    /// peer of another version sends its own version. A side that was called by a fenced peer, or by one that
    /// encrypts where it should not or the other way round, says so. The peer then knows what is wrong.
    pub fn farewell(&self, error: &HandshakeError) -> Option<&[u8]> {
        let called = !matches!(self.part, Part::Initiator { .. });
        match error {
            HandshakeError::Encryption { .. } | HandshakeError::Fenced { .. } if !self.notice.is_empty() => {
                Some(&self.notice)
            }
            HandshakeError::Version { .. } if called => {
                Some(&self.own_greeting[..MAGIC.len() + VERSION_SIZE])
            }
            _ => None,
        }
    }

    /// How many bytes it may take next without taking more than belongs to it; at least one.
    pub(crate) fn wanted(&self) -> usize {
        let needed = self.needed().unwrap_or(0);
        needed.saturating_sub(self.received.len()).max(1)
    }

    /// How many bytes are to be received in all before the next thing can be decided.
    fn needed(&self) -> Result<usize, HandshakeError> {
        if let Part::ResponderWaiting { proof, .. } = &self.part {
            return Ok(proof.map_or(ANSWER_SIZE, |proof| proof.len()));
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
            Part::Initiator { .. } if self.both_encrypt() => greeting + OPENING_SIZE,
            Part::Initiator { .. } => greeting + PROOF_SIZE,
            _ => greeting,
        })
    }

    fn advance(&mut self, step: &mut Step) -> Result<(), HandshakeError> {
        let encrypts = self.both_encrypt();
        let introduction = &self.introduction;
        match &self.part {
            Part::Initiator { called } => {
                let size = FIXED_SIZE + usize::from(self.received[FIXED_SIZE - 1]);
                let (greeting, proof) = self.received.split_at(size);
                let peer = decode_greeting(greeting, introduction.job)?;
                let key = introduction.key.shared_with(peer.identity);
                let greetings = [&self.own_greeting[..], greeting];
                let fenced = HandshakeError::Fenced {
                    identity: introduction.peer.identity,
                };
                if encrypts {
                    let mut noise = NoiseHandshake::answerer(&key, greetings);
                    match noise.read_opening(proof)? {
                        Opening::Welcome => {}
                        Opening::Fenced => return Err(fenced),
                    }
                    step.reply = noise.answer()?.to_vec();
                    self.noise = Some(noise);
                } else {
                    let is_proof_of = |said| hash(&key, said, greetings).verify_slice(proof).is_ok();
                    if !is_proof_of(Said::ByResponder) {
                        if is_proof_of(Said::OfEncryption) {
                            introduction.check_encryption(greeting)?;
                        }
                        return Err(match is_proof_of(Said::OfFence) {
                            true => fenced,
                            false => HandshakeError::Proof,
                        });
                    }
                    introduction.check_encryption(greeting)?;
                    step.reply = proof_of(&key, Said::ByInitiator, greetings).to_vec();
                }
                if peer.address != *called {
                    return Err(HandshakeError::Address {
                        address: peer.address,
                    });
                }
                introduction.check_fences(peer.identity)?;
                step.proven = Some(peer);
            }
            Part::Responder => {
                let peer = decode_greeting(&self.received, introduction.job)?;
                let key = introduction.key.shared_with(peer.identity);
                let greetings = [&self.received[..], &self.own_greeting];
                let proof = |said| proof_of(&key, said, greetings);
                let answer = |proof: &[u8]| [&self.own_greeting[..], proof].concat();
                if let Err(error) = introduction.check_encryption(&self.received) {
                    self.notice = answer(&proof(Said::OfEncryption));
                    return Err(error);
                }
                let fenced = introduction.check_fences(peer.identity);
                let (answer, proof) = if encrypts {
                    let mut noise = NoiseHandshake::opener(&key, greetings);
                    let opening = noise.open(match fenced {
                        Ok(()) => Opening::Welcome,
                        Err(_) => Opening::Fenced,
                    })?;
                    self.noise = Some(noise);
                    (answer(&opening), None)
                } else {
                    let said = match fenced {
                        Ok(()) => Said::ByResponder,
                        Err(_) => Said::OfFence,
                    };
                    (answer(&proof(said)), Some(proof(Said::ByInitiator)))
                };
                if let Err(error) = fenced {
                    self.notice = answer;
                    return Err(error);
                }
                step.reply = answer;
                self.part = Part::ResponderWaiting { peer, proof };
                self.received.clear();
            }
            Part::ResponderWaiting { peer, proof } => {
                match (proof, &mut self.noise) {
                    (Some(proof), _) if bool::from(proof[..].ct_eq(&self.received)) => {}
                    (None, Some(noise)) => noise.read_answer(&self.received)?,
                    _ => return Err(HandshakeError::Proof),
                }
                // It may have become known meanwhile.
                introduction.check_fences(peer.identity)?;
                step.proven = Some(peer.clone());
            }
        }
        Ok(())
    }

    /// True if this side encrypts and the greeting that has come says that the other does.
    fn both_encrypt(&self) -> bool {
        self.introduction.encrypts && self.received.get(ENCRYPTION_AT).is_some_and(|&says| says != 0)
    }
}

impl Introduction {
    /// Of an endpoint at `address` that encrypts nothing and fences nobody; a provider gets its introduction from
    /// [`Binding::introduction`](crate::provider::Binding::introduction). `instance` must be random.
    pub fn new(job: JobId, key: MemberKey, address: Address, instance: u64) -> Self {
        let identity = key.identity();
        Self {
            job,
            key: Arc::new(key),
            peer: Peer {
                address,
                identity,
                instance,
            },
            fences: Fences::default(),
            encrypts: false,
        }
    }

    /// Checks that the sender of this whole greeting encrypts as we do.
    fn check_encryption(&self, greeting: &[u8]) -> Result<(), HandshakeError> {
        let encrypts = greeting[ENCRYPTION_AT] != 0;
        match encrypts == self.encrypts {
            true => Ok(()),
            false => Err(HandshakeError::Encryption { encrypts }),
        }
    }

    fn check_fences(&self, peer: Identity) -> Result<(), HandshakeError> {
        match self.fences.has(peer) {
            true => Err(HandshakeError::Fenced { identity: peer }),
            false => Ok(()),
        }
    }
}

/// The statement of an HMAC under the key that two members share.
#[derive(Clone, Copy)]
enum Said {
    /// That the initiator has the key.
    ByInitiator,
    /// That the responder has it.
    ByResponder,
    /// That the responder has it, and encrypts where the initiator does not or the other way round.
    OfEncryption,
    /// That the responder has it, and knows the initiator to be fenced.
    OfFence,
}

/// `greetings` are the initiator's and the responder's.
fn proof_of(key: &SharedKey, said: Said, greetings: [&[u8]; 2]) -> [u8; PROOF_SIZE] {
    hash(key, said, greetings).finalize().into_bytes().into()
}

fn hash(key: &SharedKey, said: Said, greetings: [&[u8]; 2]) -> KeyedHash {
    let label: &[u8] = match said {
        Said::ByInitiator => b"ropewalk initiator",
        Said::ByResponder => b"ropewalk responder",
        Said::OfEncryption => b"ropewalk encryption",
        Said::OfFence => b"ropewalk fence",
    };
    let mut hash = key.hash(label);
    // A greeting contains its own length, so that the two cannot be divided differently.
    greetings.iter().for_each(|greeting| hash.update(greeting));
    hash
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
    bytes.put_slice(&identity.encode());
    bytes.put_u64_le(*instance);
    bytes.put_u8(introduction.encrypts.into());
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

/// The peer that a whole greeting names, be it true or not.
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
    let mut identity = [0; Identity::SIZE];
    at.copy_to_slice(&mut identity);
    let identity = Identity::decode(identity).ok_or(HandshakeError::Foreign)?;
    let instance = at.get_u64_le();
    if at.get_u8() > 1 {
        return Err(HandshakeError::Foreign);
    }
    at.advance(NONCE_SIZE + 1);
    let address = std::str::from_utf8(at).map_err(|_| HandshakeError::Foreign)?;
    let address = address.parse().map_err(|_| HandshakeError::Foreign)?;
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
    /// It encrypts, and this process does not; or the other way round.
    #[error(
        "{}: all processes of a job have to encrypt or none",
        if *encrypts {
            "it encrypts what it sends, and this process was told not to"
        } else {
            "it does not encrypt what it sends, and this process was told to"
        }
    )]
    Encryption {
        /// True if the other process encrypts.
        encrypts: bool,
    },
    /// One of the two is fenced: its job counts it as gone, and the other knows that. If it is this one it can come
    /// back only as a later incarnation.
    #[error("{identity} is fenced: it was found to be gone, and comes back only as a later incarnation")]
    Fenced {
        /// Who.
        identity: Identity,
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
    /// It does not have the key of who it says it is.
    #[error("it does not have the key of the member of the job that it says it is")]
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
mod tests;
