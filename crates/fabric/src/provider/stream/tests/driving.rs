//! What an endpoint tells whoever drives it.

use super::*;

/// Each part of a transfer that comes tells its driver that more is to be expected, although only the last part ends the
/// transfer; after that, nothing does.
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
