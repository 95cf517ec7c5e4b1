use core::num::NonZeroU32;

use proptest::prelude::*;

use super::{super::CacheKind, *};

fn bound_on(binding: &Binding, processors: &[Processor]) -> Result<Bindings, BindingError> {
    let mut allowed: Vec<_> = processors.iter().map(|processor| processor.number).collect();
    allowed.sort_unstable();
    Bindings::new(binding, &allowed, |number| {
        let known = processors.iter().find(|processor| processor.number == number);
        known.unwrap().clone()
    })
}

/// Parts are bound to as Hydra 4.0.2 does: what it says of itself (`HYDRA_TOPO_DEBUG`) about hosts that hwloc invents
/// (`HWLOC_SYNTHETIC`) is the same.
#[test]
fn parts_are_bound_to_as_hydra_does() {
    for (processors, expected) in [
        (two_threads(), &TWO_THREADS[..]),
        (even_and_odd(), &EVEN_AND_ODD[..]),
    ] {
        for (parts, mapping, expected) in expected {
            let binding = Binding::Parts {
                parts: parts.parse().unwrap(),
                mapping: mapping.parse::<Parts>().unwrap().into(),
            };
            let found = masks(&binding, &processors, 12).unwrap();
            assert_eq!(found, *expected, "{parts} by {mapping}");
        }
    }
}

/// Where parts do not come out even in a domain, ranks stay in it; Hydra, which says so too, leaves it there.
#[test]
fn ranks_stay_in_their_domain() {
    let binding = Binding::Parts {
        parts: "core:2".parse().unwrap(),
        mapping: "core:3".parse::<Parts>().unwrap().into(),
    };
    let domains = [0x0707, 0x3838, 0xc1c1, 0x0e0e, 0x7070, 0x8383, 0x1c1c, 0xe0e0];
    let bindings = bound_on(&binding, &two_threads()).unwrap();
    for index in 0..48 {
        let bound = bindings.of(index).unwrap().unwrap();
        let mask: u32 = bound.iter().map(|number| 1 << number).sum();
        assert_eq!(
            (mask.count_ones(), mask & !domains[index % 8]),
            (4, 0),
            "{index}: {mask:x}"
        );
    }
}

/// Ranks fill each domain before the next one if several in a row get it, and begin again behind the last.
#[test]
fn ranks_fill_domains() {
    let masks_of = |parts: &str, ranks| {
        let mapping = Mapping {
            domain: Part::Socket.into(),
            ranks: NonZeroU32::new(ranks).unwrap(),
        };
        let parts = parts.parse().unwrap();
        masks(&Binding::Parts { parts, mapping }, &two_threads(), 6).unwrap()
    };
    assert_eq!(masks_of("socket", 1), "f0f f0f0 f0f f0f0 f0f f0f0");
    assert_eq!(masks_of("socket", 2), "f0f f0f f0f0 f0f0 f0f f0f");
    assert_eq!(masks_of("core", 2), "101 202 1010 2020 404 808");
    assert_eq!(masks_of("core", 1), "101 1010 202 2020 404 4040");
}

/// Where ranks were counted by parts, a host with another number of them than the launcher's is told apart.
#[test]
fn parts_are_counted() {
    let processors = two_threads();
    for (part, count) in [
        (Part::Machine, 1),
        (Part::Socket, 2),
        (Part::Core, 8),
        (Part::HardwareThread, 16),
    ] {
        let counted = CountedParts::on(part, &processors).unwrap();
        assert_eq!(counted, CountedParts { part, count });
        assert_eq!(counted.check(&processors), Ok(()));
    }
    let (part, expected, count) = (Part::Socket, 3, 2);
    let other = CountedParts {
        part,
        count: expected,
    };
    let error = BindingError::UnlikeLauncher {
        part,
        expected,
        count,
    };
    assert_eq!(other.check(&processors), Err(error));
    let error = BindingError::NoPart { part: Part::Die };
    assert_eq!(CountedParts::on(Part::Die, &two_threads()), Err(error));
}

/// A host with a part of its processors only is what these are: nobody is bound to others.
#[test]
fn only_allowed_processors_are_bound_to() {
    let mut processors = two_threads();
    processors.retain(|processor| [1, 3, 9, 14].contains(&processor.number));
    let of = |text: &str| masks(&text.parse().unwrap(), &processors, 4).unwrap();
    assert_eq!(of("core"), "202 8 4000 202");
    assert_eq!(of("socket"), "20a 4000 20a 4000");
    assert_eq!(of("hwthread:2"), "202 4008 202 4008");
    assert_eq!(of("machine"), "420a 420a 420a 420a");
    assert_eq!(of("rr"), "2 8 200 4000");
    assert_eq!(of("user:9+1,3x2"), "202 8 8 0");
}

/// Ranks that a list has no entry for are bound nowhere; others to what it says, if it is there.
#[test]
fn lists_are_kept_to() {
    let processors = two_threads();
    let bindings = bound_on(&"user:0+2,1-3x2,99".parse().unwrap(), &processors).unwrap();
    for (index, expected) in [
        (0, Some(vec![0, 2])),
        (1, Some(vec![1, 2, 3])),
        (2, Some(vec![1, 2, 3])),
        (4, None),
    ] {
        assert_eq!(bindings.of(index), Ok(expected));
    }
    let error = bindings.of(3).unwrap_err().to_string();
    assert!(
        error.contains("no processor 99") && error.ends_with("0-15"),
        "{error}"
    );
}

/// A part that a host does not have, or not often enough, is an error that says so.
#[test]
fn what_is_not_there_is_not_bound_to() {
    let error = |parts: &str, mapping: &str| {
        let binding = Binding::Parts {
            parts: parts.parse().unwrap(),
            mapping: mapping.parse::<Parts>().unwrap().into(),
        };
        bound_on(&binding, &two_threads()).unwrap_err().to_string()
    };
    assert!(error("l4cache", "core").contains("shows no l4cache"));
    assert!(error("core", "die").contains("shows no die"));
    assert!(error("l1icache", "core").contains("shows no l1icache"));
    for (parts, mapping) in [("socket:3", "core"), ("core", "socket:3")] {
        let error = error(parts, mapping);
        assert!(
            error.contains("socket:3") && error.contains("socket 2 times only"),
            "{error}"
        );
    }
    for text in ["core", "rr", "machine"] {
        let bindings = bound_on(&text.parse().unwrap(), &[]);
        let bound = bindings.and_then(|bindings| bindings.of(0));
        assert!(
            matches!(bound, Err(BindingError::NoPart { .. })),
            "{text}: {bound:?}"
        );
    }
}

/// Of a host whose cores are of two kinds only some share caches; domains without any are left out.
#[test]
fn some_cores_may_have_no_cache() {
    let mut processors = even_and_odd();
    for processor in &mut processors {
        if processor.socket == 0 {
            processor.caches.remove(&data_cache(3));
        }
    }
    let binding = Binding::Parts {
        parts: "l3cache".parse().unwrap(),
        mapping: "socket".parse::<Parts>().unwrap().into(),
    };
    assert_eq!(masks(&binding, &processors, 2), Ok("2a 2a".to_owned()));
}

proptest! {
    /// Wherever ranks begin, none has what another has, as long as there are parts; and all parts are somebody's.
    #[test]
    fn parts_are_bound_to_once_before_they_are_again(
        (sockets, caches, cores, threads) in (1u32..4, 1u32..4, 1u32..4, 1u32..3),
        part in 0usize..4,
        outer in 0usize..4,
        order in any::<u64>(),
    ) {
        let cores_all = sockets * caches * cores;
        let mut processors: Vec<_> = (0..cores_all * threads)
            .map(|number| {
                let core = number % cores_all;
                let cache = core / cores;
                Processor {
                    number,
                    socket: cache / caches,
                    die: None,
                    numa: cache / caches,
                    core,
                    caches: [(data_cache(3), cache * cores)].into(),
                }
            })
            .collect();
        // The order in which they are told of does not count.
        processors.sort_by_key(|processor| u64::from(processor.number + 1).wrapping_mul(order | 1));
        let kinds = [Part::HardwareThread, Part::Core, Part::Cache(data_cache(3)), Part::Socket];
        let counts = [cores_all * threads, cores_all, sockets * caches, sockets];
        let binding = Binding::Parts {
            parts: kinds[part].into(),
            mapping: Parts::from(kinds[part.max(outer)]).into(),
        };
        let bindings = bound_on(&binding, &processors).unwrap();
        let mut bound: Vec<u32> = (0..counts[part] as usize)
            .flat_map(|index| bindings.of(index).unwrap().unwrap())
            .collect();
        bound.sort_unstable();
        prop_assert_eq!(bound, (0..cores_all * threads).collect::<Vec<_>>());
    }
}

/// The processors that so many ranks are bound to, as Hydra's masks.
fn masks(binding: &Binding, processors: &[Processor], ranks: usize) -> Result<String, BindingError> {
    let bindings = bound_on(binding, processors)?;
    let masks = (0..ranks).map(|index| {
        let bound = bindings.of(index)?.unwrap_or_default();
        let mask: u64 = bound.iter().map(|number| 1 << number).sum();
        Ok(format!("{mask:x}"))
    });
    Ok(masks.collect::<Result<Vec<_>, _>>()?.join(" "))
}

fn data_cache(level: u8) -> CacheKind {
    CacheKind {
        level,
        is_instruction: false,
    }
}

/// Two sockets with four cores each, of which two share an L3 cache; the second hardware threads are numbered
/// behind all the first.
fn two_threads() -> Vec<Processor> {
    (0..16)
        .map(|number| {
            let core = number % 8;
            Processor {
                number,
                socket: core / 4,
                die: None,
                numa: core / 4,
                core: core % 4,
                caches: [(data_cache(2), core), (data_cache(3), core / 2 * 2)].into(),
            }
        })
        .collect()
}

/// Two sockets with three cores each, whose numbers alternate.
fn even_and_odd() -> Vec<Processor> {
    (0..6)
        .map(|number| Processor {
            number,
            socket: number % 2,
            die: None,
            numa: number % 2,
            core: number / 2,
            caches: [(data_cache(2), number), (data_cache(3), number % 2)].into(),
        })
        .collect()
}

/// The masks of the processors that Hydra binds twelve ranks to on [`two_threads`].
const TWO_THREADS: [(&str, &str, &str); 23] = [
    (
        "machine",
        "machine",
        "ffff ffff ffff ffff ffff ffff ffff ffff ffff ffff ffff ffff",
    ),
    (
        "numa",
        "numa",
        "f0f f0f0 f0f f0f0 f0f f0f0 f0f f0f0 f0f f0f0 f0f f0f0",
    ),
    (
        "socket",
        "socket",
        "f0f f0f0 f0f f0f0 f0f f0f0 f0f f0f0 f0f f0f0 f0f f0f0",
    ),
    (
        "l3cache",
        "l3cache",
        "303 c0c 3030 c0c0 303 c0c 3030 c0c0 303 c0c 3030 c0c0",
    ),
    (
        "core",
        "core",
        "101 202 404 808 1010 2020 4040 8080 101 202 404 808",
    ),
    (
        "core:2",
        "core:2",
        "303 c0c 3030 c0c0 303 c0c 3030 c0c0 303 c0c 3030 c0c0",
    ),
    (
        "core:3",
        "core:3",
        "707 3838 c1c1 e0e 7070 8383 1c1c e0e0 707 3838 c1c1 e0e",
    ),
    (
        "l2cache:3",
        "l2cache:3",
        "707 3838 c1c1 e0e 7070 8383 1c1c e0e0 707 3838 c1c1 e0e",
    ),
    ("hwthread", "hwthread", "1 100 2 200 4 400 8 800 10 1000 20 2000"),
    (
        "hwthread:3",
        "hwthread:3",
        "103 604 818 3020 40c0 8101 206 c08 1030 6040 8081 302",
    ),
    (
        "core",
        "socket",
        "101 1010 202 2020 404 4040 808 8080 101 1010 202 2020",
    ),
    (
        "core",
        "l3cache",
        "101 404 1010 4040 202 808 2020 8080 101 404 1010 4040",
    ),
    (
        "core:2",
        "socket",
        "303 3030 c0c c0c0 303 3030 c0c c0c0 303 3030 c0c c0c0",
    ),
    (
        "core:3",
        "socket",
        "707 7070 b0b b0b0 d0d d0d0 e0e e0e0 707 7070 b0b b0b0",
    ),
    (
        "socket",
        "core",
        "f0f f0f f0f f0f f0f0 f0f0 f0f0 f0f0 f0f f0f f0f f0f",
    ),
    ("hwthread", "core", "1 2 4 8 10 20 40 80 100 200 400 800"),
    ("hwthread", "socket", "1 10 100 1000 2 20 200 2000 4 40 400 4000"),
    (
        "hwthread:2",
        "l3cache",
        "101 404 1010 4040 202 808 2020 8080 101 404 1010 4040",
    ),
    (
        "core",
        "hwthread",
        "101 101 202 202 404 404 808 808 1010 1010 2020 2020",
    ),
    (
        "l3cache",
        "l3cache:3",
        "303 c0c0 3030 c0c c0c 303 c0c0 3030 3030 c0c 303 c0c0",
    ),
    (
        "core",
        "numa:2",
        "101 202 404 808 1010 2020 4040 8080 101 202 404 808",
    ),
    (
        "hwthread:3",
        "core:2",
        "103 40c 1030 40c0 301 c04 3010 c040 203 80c 2030 80c0",
    ),
    (
        "socket",
        "machine",
        "f0f f0f0 f0f f0f0 f0f f0f0 f0f f0f0 f0f f0f0 f0f f0f0",
    ),
];

/// The same on [`even_and_odd`].
const EVEN_AND_ODD: [(&str, &str, &str); 5] = [
    ("core", "core", "1 4 10 2 8 20 1 4 10 2 8 20"),
    ("core", "socket", "1 2 4 8 10 20 1 2 4 8 10 20"),
    ("hwthread:2", "hwthread:2", "5 12 28 5 12 28 5 12 28 5 12 28"),
    ("socket", "core:2", "15 15 2a 15 15 2a 15 15 2a 15 15 2a"),
    ("core:2", "l3cache", "5 a 11 22 14 28 5 a 11 22 14 28"),
];
