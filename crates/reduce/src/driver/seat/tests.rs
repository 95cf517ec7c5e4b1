use ropewalk_reduce_core::{Contributions, Token};

use super::*;
use crate::signature::{OnLoss, Order, RootFailure};

const OWN: Rank = Rank(1);
const OTHER: Rank = Rank(2);

fn signature() -> Signature {
    Signature {
        operation: "sum".into(),
        element: "f64".into(),
        element_size: std::num::NonZeroU32::new(8),
        length: Some(8),
        contributions: Contributions::Each,
        root: Rank(0),
        is_spread: true,
        order: Order::Any,
        on_loss: OnLoss::Fail,
        on_root_loss: RootFailure::Fail,
    }
}

fn standing(session: Session, end: Option<End>) -> Standing {
    Standing {
        session,
        call: signature().call(&ProcessGroup::world(3)).unwrap(),
        originals: vec![(Member(2), Token(2))],
        shares: Vec::new(),
        chunking: None,
        roster: None,
        end,
    }
}

/// A rank without a copy stands in the circumstances of the end, and the scheduler's messages from the first call
/// on, but not those after the end.
#[test]
fn ends_tell_who_was_unprotected() {
    let group = GroupId::of(&ProcessGroup::world(3), Epoch(0));
    let number = ReductionNumber::Call(0);
    let session = ReductionId { group, number }.session();
    let hosts = [HostMark::of("host"); 3];
    let costs = Costs {
        latency: 1e-4,
        per_chunk: 1e-5,
        rate: 1e8,
    };
    let mut seat = Seat::new(Rank(0), &hosts, costs, Epoch(0));
    seat.note_received(1_000);
    seat.handle(Duration::ZERO, OTHER, ToSeat::Unprotected(session));
    let introduction = Introduction {
        session,
        members: None,
        signature: Some(signature()),
    };
    seat.introduce(OTHER, introduction);
    seat.note_received(30);
    seat.note_sent(20);
    let end = End::RootLost;
    let circumstances = seat.circumstances(session, &end);
    assert_eq!(circumstances.unprotected, [OTHER]);
    let expected = SchedulerLoad {
        received: 1,
        received_bytes: 30,
        sent: 1,
        sent_bytes: 20,
    };
    assert_eq!(circumstances.load, expected);
    seat.note_sent(20);
    seat.handle(Duration::ZERO, OWN, ToSeat::Unprotected(session));
    assert_eq!(seat.circumstances(session, &end), circumstances);
    assert!(seat.unprotected.is_empty());
}

/// The scheduler of three ranks is lost when one of the others has heard the end of an allreduce. The next one
/// tells the last rank, with the result.
#[test]
fn a_new_seat_hears_of_results() {
    let group = GroupId::of(&ProcessGroup::world(3), Epoch(0));
    let number = ReductionNumber::Call(0);
    let session = ReductionId { group, number }.session();
    let hosts = [HostMark::of("host"); 3];
    let costs = Costs {
        latency: 1e-4,
        per_chunk: 1e-5,
        rate: 1e8,
    };
    let gone = BTreeSet::from([Rank(0)]);
    let mut seat = Seat::take_over(
        OWN,
        &hosts,
        costs,
        Epoch(0),
        &gone,
        std::iter::empty(),
        Duration::ZERO,
    );
    let tell = |seat: &mut Seat, from, introductions, standing, enclosed| {
        let message = ToScheduler::Standing {
            term: Term(OWN.0),
            sessions: vec![standing],
        };
        let mail = ToSeat::Worker {
            introductions,
            message,
            enclosed,
        };
        seat.handle(Duration::ZERO, from, mail);
    };
    let done = End::Done {
        root: Member(0),
        excluded: Vec::new(),
    };
    let result = Bytes::from_static(b"the sum.");
    let enclosed = vec![(session, result.clone())];
    tell(
        &mut seat,
        OWN,
        Vec::new(),
        standing(session, Some(done)),
        enclosed,
    );
    let introduction = Introduction {
        session,
        members: None,
        signature: Some(signature()),
    };
    tell(
        &mut seat,
        OTHER,
        vec![introduction],
        standing(session, None),
        Vec::new(),
    );
    let is_end = |to: Site, message: &ToSite| {
        to == Site(OTHER.0) && matches!(message.message, FromScheduler::Ended { .. })
    };
    let results = std::iter::from_fn(|| seat.poll()).filter_map(|action| match action {
        SeatAction::Send(to, message) if is_end(to, &message) => Some(message.circumstances.result),
        SeatAction::Send(..) | SeatAction::LetGo(_) => None,
    });
    let results: Vec<Option<Bytes>> = results.collect();
    assert!(!results.is_empty());
    assert!(
        results.iter().all(|told| told.as_ref() == Some(&result)),
        "{results:?}"
    );
}
