//! How an endpoint comes to be.

use std::{io, os::fd::AsFd, sync::Arc};

use rustix::event::epoll::EventFlags;

use crate::{
    Address, BindError, EndpointOptions, MemberKey, Peer, ProviderStatus,
    fences::Fences,
    handshake::Introduction,
    poller::{Poller, Source},
    provider::{Provider, stream::StreamProvider},
};

/// An endpoint in the making, as a provider sees it that is opened for it.
pub struct Binding<'a> {
    pub(super) options: &'a EndpointOptions,
    pub(super) key: Arc<MemberKey>,
    pub(super) fences: &'a Fences,
    pub(super) poller: &'a Poller,
    pub(super) instance: u64,
    /// Where peers reach it, once that is known.
    pub(super) address: Option<Address>,
    /// The fastest first.
    pub(super) providers: Vec<Box<dyn Provider>>,
    pub(super) statuses: Vec<ProviderStatus>,
}

impl Binding<'_> {
    /// The options of the endpoint.
    pub fn options(&self) -> &EndpointOptions {
        self.options
    }

    /// The endpoint's words about itself in each handshake; peers reach it at `address`.
    pub fn introduction(&self, address: Address) -> Introduction {
        self.introduction_of(address, false)
    }

    /// Wakes the endpoint when this descriptor becomes readable.
    ///
    /// # Errors
    /// If the system is out of memory or allows no more.
    pub fn watch(&self, descriptor: impl AsFd) -> io::Result<()> {
        let poller = self.poller.of(Source::External);
        Ok(poller.add(0, descriptor, EventFlags::IN)?)
    }

    /// The introduction of this endpoint to its peers; `encrypts` says if the traffic after it is encrypted.
    fn introduction_of(&self, address: Address, encrypts: bool) -> Introduction {
        Introduction {
            job: self.options.job,
            key: Arc::clone(&self.key),
            peer: Peer {
                address,
                identity: self.key.identity(),
                instance: self.instance,
            },
            fences: self.fences.clone(),
            encrypts,
        }
    }

    pub(super) fn leave_out(&mut self, name: &'static str, reason: &str) {
        self.statuses.push(ProviderStatus {
            name,
            unavailable: Some(reason.to_owned()),
        });
    }

    /// Adds a provider before the others, as the fastest, by which peers reach the endpoint at `address`.
    pub(super) fn add(&mut self, name: &'static str, provider: Box<dyn Provider>, address: Address) {
        self.statuses.push(ProviderStatus {
            name,
            unavailable: None,
        });
        self.providers.insert(0, provider);
        self.address = Some(address);
    }

    /// Peers of this host only, and nothing shared with them.
    pub(super) fn bind_unix(&mut self) -> Result<(), BindError> {
        for name in ["tcp", "shm"] {
            self.leave_out(name, "UNIX sockets are used instead");
        }
        let failed = |source: io::Error| BindError::Io {
            address: self.options.bind,
            source,
        };
        let address = self.named_address("unix").map_err(failed)?;
        let listener = StreamProvider::listen_unix(&address).map_err(failed)?;
        let introduction = self.introduction(address.clone());
        let poller = self.poller.of(Source::Shm);
        let provider = StreamProvider::new("unix", listener, introduction, self.options, poller)?;
        self.add("unix", Box::new(provider), address);
        Ok(())
    }

    pub(super) fn bind_tcp(&mut self) -> Result<(), BindError> {
        if !self.options.transports.tcp {
            self.leave_out("tcp", "not asked for");
            return Ok(());
        }
        let (listener, address) = StreamProvider::listen_tcp(self.options.bind)?;
        let introduction = self.introduction_of(address.clone(), self.options.encrypt);
        let poller = self.poller.of(Source::Tcp);
        let provider = StreamProvider::new("tcp", listener, introduction, self.options, poller)?;
        self.add("tcp", Box::new(provider), address);
        Ok(())
    }

    /// Shared memory beside TCP is found under its address; if it cannot be had, TCP serves this host too.
    pub(super) fn bind_shm(&mut self) -> Result<(), BindError> {
        if !self.options.transports.shm {
            self.leave_out("shm", "not asked for");
            return Ok(());
        }
        let address = match &self.address {
            Some(beside) => Ok(beside.clone()),
            None => self.named_address("shm"),
        };
        let listened = address.and_then(|address| Ok((StreamProvider::listen_unix(&address)?, address)));
        match listened {
            Ok((listener, address)) => {
                let introduction = self.introduction(address.clone());
                let poller = self.poller.of(Source::Shm);
                let provider = StreamProvider::new("shm", listener, introduction, self.options, poller)?;
                self.add("shm", Box::new(provider), address);
            }
            Err(error) if self.address.is_some() => self.leave_out("shm", &error.to_string()),
            Err(source) => {
                let address = self.options.bind;
                return Err(BindError::Io { address, source });
            }
        }
        Ok(())
    }

    /// The address of an endpoint that only this host can reach.
    fn named_address(&self, provider: &str) -> io::Result<Address> {
        let name = match &self.options.name {
            Some(name) => name.clone(),
            None => {
                let mut random = [0; 16];
                getrandom::fill(&mut random).map_err(io::Error::other)?;
                format!("{:032x}", u128::from_le_bytes(random))
            }
        };
        format!("{provider}://{name}").parse().map_err(io::Error::other)
    }
}
