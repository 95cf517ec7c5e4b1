//! A host whose every connection goes through a relay, which does to it what bad networks do.

use std::{
    net::{TcpListener, TcpStream},
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle, sleep},
    time::Duration,
};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};

use crate::{
    Network, Weather,
    weather::{Count, carry, reset},
    within,
};

/// A network in which one host is behind a relay. Its connections to others are taken by a namespace that has their
/// addresses, and made from one that has its own; those to it likewise.
pub struct Relay {
    network: Option<Network>,
    /// Everything that happened.
    pub count: Arc<Count>,
    sides: Vec<JoinHandle<()>>,
}

/// The places where one side's connections are taken, and where they are made.
struct Side {
    listeners: Vec<TcpListener>,
    dials_from: String,
}

impl Relay {
    /// Makes the network, and puts one host of it behind a relay.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new(hosts: u8, mbit: u32, relayed: u8, weather: Weather) -> anyhow::Result<Self> {
        let network = Network::with_relay(hosts, mbit, relayed)?;
        let others = (0..=hosts).filter(|other| *other != relayed);
        let others: Vec<String> = others.map(|other| network.address(other)).collect();
        let outwards = Side {
            listeners: listen(&network.towards_relayed(), &others)?,
            dials_from: network.outside_relayed(),
        };
        let inwards = Side {
            listeners: listen(&network.outside_relayed(), &[network.address(relayed)])?,
            dials_from: network.namespace(relayed),
        };
        let count = Arc::<Count>::default();
        let sides = [outwards, inwards].map(|side| {
            let count = Arc::clone(&count);
            thread::spawn(move || side.take_connections(weather, &count))
        });
        Ok(Self {
            network: Some(network),
            count,
            sides: sides.into(),
        })
    }

    /// Its hosts.
    pub fn network(&self) -> &Network {
        self.network.as_ref().expect("it is taken when this is dropped")
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.count.is_over.store(true, Ordering::Relaxed);
        // Their processes end, and with them their connections.
        self.network = None;
        for side in self.sides.drain(..) {
            if let Err(panic) = side.join()
                && !thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

fn listen(namespace: &str, addresses: &[String]) -> anyhow::Result<Vec<TcpListener>> {
    within(namespace, || {
        let places = addresses
            .iter()
            .flat_map(|address| Network::RELAYED_PORTS.map(move |port| (address, port)));
        let listeners = places.map(|(address, port)| {
            let listener = TcpListener::bind((address.as_str(), port))
                .with_context(|| format!("cannot listen at {address}:{port}"))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        listeners.collect()
    })
}

impl Side {
    fn take_connections(&self, weather: Weather, count: &Arc<Count>) {
        let mut carriers = Vec::new();
        while !count.is_over.load(Ordering::Relaxed) {
            let mut ready: Vec<PollFd<'_>> = self
                .listeners
                .iter()
                .map(|listener| PollFd::new(listener, PollFlags::IN))
                .collect();
            let patience = PATIENCE.try_into().ok();
            // An interruption only means to look again.
            let _ = poll(&mut ready, patience.as_ref());
            let called = self.listeners.iter().zip(&ready);
            for (listener, _) in called.filter(|(_, ready)| !ready.revents().is_empty()) {
                if let Ok((caller, _)) = listener.accept() {
                    carriers.extend(self.take_connection(caller, weather, count));
                }
            }
        }
        for carrier in carriers {
            // One that panicked was told on standard error.
            let _ = carrier.join();
        }
    }

    fn take_connection(
        &self,
        caller: TcpStream,
        weather: Weather,
        count: &Arc<Count>,
    ) -> Vec<JoinHandle<()>> {
        let is_ended = weather.end_after.is_some_and(|after| count.bytes() >= after) || count.is_out(weather);
        let called = match (is_ended, caller.local_addr()) {
            (false, Ok(called)) => called,
            _ => {
                count.turned_away.fetch_add(1, Ordering::Relaxed);
                reset(&caller);
                return Vec::new();
            }
        };
        if count.connections.fetch_add(1, Ordering::Relaxed) > 0 {
            sleep(weather.dial_delay);
        }
        let connected = within(&self.dials_from, || {
            Ok(TcpStream::connect_timeout(&called, DIAL_PATIENCE)?)
        });
        let streams = connected.and_then(|listener| {
            caller.set_nonblocking(false)?;
            Ok([
                (0, caller.try_clone()?, listener.try_clone()?),
                (1, listener, caller.try_clone()?),
            ])
        });
        let Ok(streams) = streams else {
            reset(&caller);
            return Vec::new();
        };
        let carriers = streams.map(|(way, from, to)| {
            let count = Arc::clone(count);
            thread::spawn(move || carry(way, from, to, weather, &count))
        });
        carriers.into()
    }
}

/// So often it is looked whether the relay is over.
const PATIENCE: Duration = Duration::from_millis(20);
const DIAL_PATIENCE: Duration = Duration::from_secs(1);
