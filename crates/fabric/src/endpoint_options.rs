//! The options of an endpoint.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    str::FromStr,
};

use ropewalk_names::JobId;
use thiserror::Error;

use crate::{Identity, JobKey, Limits, MemberKey, Welcome};

/// The options of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// The job; processes of another one are refused.
    pub job: JobId,
    /// Who this process is, and by what it proves that.
    pub key: MemberKey,
    /// The address and port to listen on; port 0 lets the system choose.
    pub bind: SocketAddr,
    /// The name in its `shm://` or `unix://` address, if it is without TCP; without one it gets a random one. A name is
    /// free again once its endpoint is gone.
    pub name: Option<String>,
    /// By which ways peers are reached.
    pub transports: Transports,
    /// True if the data of this endpoint's own `get` and `put` goes with a checksum of ours (CRC-32C) besides
    /// those of the network. Each piece, up to 256 KiB, is verified before the operation completes. If one is
    /// wrong, its receiver ends the connection with [`PeerDeath::Protocol`](crate::PeerDeath::Protocol), and
    /// so a `get`; a `put` ends because the target closes. The origin decides for both directions: a target
    /// goes along, whatever its own option. Off by default.
    ///
    /// It holds for TCP, and with peers on this host for what is sent to them. What is copied straight from or to
    /// their memory, or the endpoint's own, has none: it never leaves the memory. Nor has it an effect over a
    /// provider of another crate ([`Transports::external`]).
    pub bulk_checksum: bool,
    /// True if the traffic over TCP is encrypted. Peers have to agree: an endpoint that is told to encrypt
    /// refuses over TCP one that is not, and the other way round, with
    /// [`HandshakeError::Encryption`](crate::HandshakeError::Encryption). Traffic that stays on this host,
    /// over UNIX sockets and through shared memory, is not encrypted. Over a provider of another crate
    /// nothing can be, and an endpoint that is asked for both is not made. Off by default.
    pub encrypt: bool,
    /// The maxima.
    pub limits: Limits,
}

/// The ways by which an endpoint reaches its peers, and they it. Two endpoints have to have one in common,
/// except that those with `shm` and those with `unix` reach each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transports {
    /// TCP, to any host.
    pub tcp: bool,
    /// Shared memory, to processes of the same host; where it works it goes before the others.
    pub shm: bool,
    /// With shared memory, that the kernel copies from and to memory that is not from
    /// [`Endpoint::allocate`](crate::Endpoint::allocate), if it allows that (`process_vm_readv`); else such
    /// memory is sent.
    pub process_vm: bool,
    /// Instead of TCP and shared memory, UNIX sockets with nothing beside them, for peers on this host that have little
    /// to say: such a link takes next to no time and memory to make. The address is `unix://NAME`, which endpoints with
    /// shared memory reach too.
    pub unix: bool,
    /// Instead of all these a provider of another crate, as `NAME:CHOICE`, such as `ofi:tcp` for one of libfabric's;
    /// see [`Endpoint::bind_with`](crate::Endpoint::bind_with).
    pub external: Option<String>,
}

/// Why a text names no transports.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TransportsError {
    /// One of the words is none.
    #[error("{word:?} is no transport; there are `tcp`, `shm`, `no-process-vm`, `unix` and `ofi:PROVIDER`")]
    Unknown {
        /// Which.
        word: String,
    },
    /// UNIX sockets without shared memory stand beside something else.
    #[error("`unix` is instead of all other transports; name it alone or leave it out")]
    Beside,
    /// Nothing is left by which a peer could be reached.
    #[error("no transport is named; give `tcp`, `shm`, both, `unix`, or `ofi:PROVIDER`")]
    None,
}

impl FromStr for Transports {
    type Err = TransportsError;

    /// From names with commas between them: `tcp`, `shm`, and with it `no-process-vm` to leave that out, `unix`, or
    /// `NAME:CHOICE` for a provider of another crate. What is not named is not used.
    fn from_str(text: &str) -> Result<Self, TransportsError> {
        let mut transports = Self {
            tcp: false,
            shm: false,
            process_vm: true,
            unix: false,
            external: None,
        };
        for word in text.split(',').map(str::trim) {
            match word {
                "tcp" => transports.tcp = true,
                "shm" => transports.shm = true,
                "unix" => transports.unix = true,
                "no-process-vm" => transports.process_vm = false,
                _ => match word.split_once(':') {
                    Some((name, choice)) if !name.is_empty() && !choice.is_empty() => {
                        transports.external = Some(word.to_owned());
                    }
                    _ => {
                        let word = word.to_owned();
                        return Err(TransportsError::Unknown { word });
                    }
                },
            }
        }
        if transports.unix && (transports.tcp || transports.shm || transports.external.is_some()) {
            return Err(TransportsError::Beside);
        }
        if !transports.tcp && !transports.shm && !transports.unix && transports.external.is_none() {
            return Err(TransportsError::None);
        }
        Ok(transports)
    }
}

impl Default for Transports {
    /// TCP, and shared memory with peers on this host.
    fn default() -> Self {
        Self {
            tcp: true,
            shm: true,
            process_vm: true,
            unix: false,
            external: None,
        }
    }
}

impl EndpointOptions {
    /// As [`of_member`](Self::of_member), for a process that has the key of the job itself.
    pub fn new(job: JobId, key: JobKey, identity: Identity) -> Self {
        Self::of_member(job, key.key_of(identity))
    }

    /// As [`of_member`](Self::of_member), for a process whose agent has said who it is. It listens on the
    /// interface of its agent, where the other hosts reach it, and encrypts if the job does.
    pub fn of_welcome(welcome: Welcome) -> Self {
        let mut options = Self::of_member(welcome.job, welcome.key);
        options.encrypt = welcome.encrypt;
        if welcome.agent.provider() == "tcp"
            && let Ok(agent) = welcome.agent.location().parse::<SocketAddr>()
        {
            options.bind.set_ip(agent.ip());
        }
        options
    }

    /// Options for an endpoint on a port of the system's choice on the loopback interface, with the default
    /// limits.
    pub fn of_member(job: JobId, key: MemberKey) -> Self {
        Self {
            job,
            key,
            bind: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            name: None,
            transports: Transports::default(),
            bulk_checksum: false,
            encrypt: false,
            limits: Limits::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_names::{Incarnation, Rank};

    use super::*;
    use crate::Role;

    /// The named transports are used and nothing else; a text that is no name, or leaves nothing, is refused.
    #[test]
    fn transports_are_named() {
        let all = Transports::default();
        assert_eq!("tcp,shm".parse(), Ok(all.clone()));
        let tcp = Transports {
            shm: false,
            ..all.clone()
        };
        assert_eq!(" tcp ".parse(), Ok(tcp));
        let sent = Transports {
            tcp: false,
            process_vm: false,
            ..all.clone()
        };
        assert_eq!("shm, no-process-vm".parse(), Ok(sent));
        let unix = Transports {
            tcp: false,
            shm: false,
            unix: true,
            ..all
        };
        assert_eq!("unix".parse(), Ok(unix));
        let external = "ofi:tcp;ofi_rxm".parse::<Transports>().unwrap();
        assert_eq!(external.external.as_deref(), Some("ofi:tcp;ofi_rxm"));
        for bad in ["", "udp", "tcp,", "ofi:", ":tcp", "TCP"] {
            let word = bad.rsplit(',').next().unwrap().to_owned();
            assert_eq!(bad.parse::<Transports>(), Err(TransportsError::Unknown { word }));
        }
        assert_eq!("no-process-vm".parse::<Transports>(), Err(TransportsError::None));
        for beside in ["tcp,unix", "unix,shm", "unix,ofi:tcp"] {
            assert_eq!(beside.parse::<Transports>(), Err(TransportsError::Beside));
        }
    }

    /// A rank listens where its agent does, and encrypts if it is told to.
    #[test]
    fn a_rank_goes_by_its_agent() {
        let identity = Identity {
            role: Role::Rank,
            rank: Rank(1),
            incarnation: Incarnation(0),
        };
        let key = JobKey::from_bytes([2; 32]).key_of(identity);
        for (agent, bind) in [
            ("tcp://10.1.2.3:44", "10.1.2.3:0"),
            ("tcp://[fd00::7]:44", "[fd00::7]:0"),
            ("unix://name", "127.0.0.1:0"),
        ] {
            for encrypt in [false, true] {
                let options = EndpointOptions::of_welcome(Welcome {
                    job: JobId([1; 16]),
                    key: key.clone(),
                    size: 2,
                    agent: agent.parse().unwrap(),
                    encrypt,
                    detect: std::time::Duration::from_secs(3),
                });
                assert_eq!(
                    (options.bind.to_string(), options.encrypt),
                    (bind.to_owned(), encrypt)
                );
            }
        }
    }
}
