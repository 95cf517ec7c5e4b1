//! Bad weather for connections: a carrier of bytes that does to them what bad networks do.
//!
//! The tests of `ropewalk run` on several hosts have this file too.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

/// Everything that a relay does to each connection, in both directions unless said otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// A reset to both ends after so many bytes of one direction.
    pub reset_every: Option<usize>,
    /// Of so many bytes of all connections, one comes with a wrong bit.
    pub flip_every: Option<usize>,
    /// Another connection is made so much later than asked for.
    pub dial_delay: Duration,
    /// Once, after so many bytes of all connections, nothing goes for so long.
    pub stall: Option<(usize, Duration)>,
    /// After so many bytes of all connections, nothing goes any more these ways, also over connections that are made
    /// then. Way 0 is towards those who listen where the relay does.
    pub cut: Option<(usize, &'static [usize])>,
    /// At a reset, the bytes before it still arrive after so long: the sender cannot know.
    pub late_after_reset: Duration,
    /// So much later arrives what is read at once.
    pub delay: Duration,
    /// After so many bytes of all connections there is a reset, and nobody can connect again.
    pub end_after: Option<usize>,
    /// Once, after so many bytes of all connections, each is reset, and so are those that are made for so long.
    pub outage: Option<(usize, Duration)>,
    /// So many bytes in a second.
    pub rate: Option<usize>,
}

/// Everything that happened.
#[derive(Debug, Default)]
pub struct Count {
    /// Connections that began.
    pub connections: AtomicUsize,
    /// Bytes of either way.
    bytes: [AtomicUsize; 2],
    /// Connections that were reset.
    pub resets: AtomicUsize,
    /// Connections that were reset before they began.
    pub turned_away: AtomicUsize,
    /// Bits that were changed.
    pub flips: AtomicUsize,
    is_stalled: AtomicBool,
    outage: OnceLock<Instant>,
    /// The carriers end.
    pub is_over: AtomicBool,
}

impl Count {
    /// The bytes of both ways.
    pub fn bytes(&self) -> usize {
        self.bytes.iter().map(|way| way.load(Ordering::Relaxed)).sum()
    }

    /// Connections are reset now, whatever they do.
    pub fn is_out(&self, weather: Weather) -> bool {
        weather.outage.is_some_and(|(after, length)| {
            self.bytes() >= after && self.outage.get_or_init(Instant::now).elapsed() < length
        })
    }
}

/// How long a carrier waits for bytes before it looks whether all is over.
const PATIENCE: Duration = Duration::from_millis(20);

/// Carries one direction of a connection until it ends: [way](Weather::cut) 0 or 1.
pub fn carry(way: usize, mut from: TcpStream, mut to: TcpStream, weather: Weather, count: &Count) {
    let are_set = from
        .set_read_timeout(Some(PATIENCE))
        .and(to.set_write_timeout(Some(Duration::from_secs(10))));
    if are_set.is_err() {
        return reset(&to);
    }
    let (mut buffer, mut carried) = (vec![0; 64 << 10], 0);
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) => {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if count.is_over.load(Ordering::Relaxed) {
                    return;
                }
                continue;
            }
            // A reset goes on to the other end.
            Err(_) => return reset(&to),
        };
        carried += length;
        let before = count.bytes[way].fetch_add(length, Ordering::Relaxed);
        let passes = |every: usize| before / every != (before + length) / every;
        if let Some(every) = weather.flip_every
            && passes(every)
        {
            buffer[length / 2] ^= 1 << (before % 8);
            count.flips.fetch_add(1, Ordering::Relaxed);
        }
        if let Some((after, pause)) = weather.stall
            && count.bytes() >= after
            && !count.is_stalled.swap(true, Ordering::Relaxed)
        {
            sleep(pause);
        }
        if let Some((after, cut)) = weather.cut
            && count.bytes() >= after
            && cut.contains(&way)
        {
            // What comes is not heard, and nobody is told.
            continue;
        }
        let ends = weather.end_after.is_some_and(|after| count.bytes() >= after) || count.is_out(weather);
        if ends || weather.reset_every.is_some_and(|every| carried >= every) {
            count.resets.fetch_add(1, Ordering::Relaxed);
            reset(&from);
            if !weather.late_after_reset.is_zero() {
                sleep(weather.late_after_reset);
                // If nobody reads any more, nothing was late.
                let _ = to.write_all(&buffer[..length]);
            }
            return reset(&to);
        }
        sleep(weather.delay);
        if let Some(rate) = weather.rate {
            sleep(Duration::from_secs_f64(length as f64 / rate as f64));
        }
        if to.write_all(&buffer[..length]).is_err() {
            return reset(&from);
        }
    }
}

/// Ends a connection so that its other end hears of a reset, although another thread has this end too.
pub fn reset(stream: &TcpStream) {
    // One that is over already is what is wanted.
    let _ = rustix::net::connect_unspec(stream);
}
