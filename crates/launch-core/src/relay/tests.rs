use ropewalk_names::Rank;

use super::*;
use crate::event::OutputStream;

const DETECT: Duration = Duration::from_secs(3);
const START_TIMEOUT: Duration = Duration::from_secs(30);
const SIGTERM: i32 = 15;

/// A message that is larger than the window still goes, and its credit comes back whole.
#[test]
fn large_output_goes_alone() {
    let mut relay = Relay::new(Tree::new(1, 1), NodeId(1), DETECT, START_TIMEOUT);
    let output = |size| Report::Output {
        rank: Rank(0),
        stream: OutputStream::Stdout,
        lines: vec![0; size],
    };
    for _ in 0..3 {
        relay.report(HostId(0), output(OUTPUT_WINDOW - 1));
    }
    let mut sent = 0;
    while let Some(Action::SendParent(up)) = relay.poll_action() {
        sent += up.report.output_size();
    }
    assert_eq!(
        (sent, relay.own_output()),
        (2 * (OUTPUT_WINDOW - 1), OUTPUT_WINDOW - 1)
    );
    relay.handle_down(Down::Credit(sent as u32 / 2));
    assert!(matches!(relay.poll_action(), Some(Action::SendParent(_))) == (sent / 2 + 2 > OUTPUT_WINDOW));
}

/// A job that is ended while its agents come up does not wait for those of other hosts, and the one beside
/// the launcher, whose ranks may run already, hears it.
#[test]
fn an_agent_beside_the_launcher_hears_an_early_end() {
    let tree = Tree::new(2, 2);
    let [here, elsewhere] = [0, 1].map(|host| NodeId::of(HostId(host)));
    let mut relay = Relay::new(tree, NodeId::ROOT, DETECT, START_TIMEOUT);
    relay.beside.insert(here);
    relay.start(Duration::ZERO);
    let order = Order::Signal {
        rank: None,
        signal: SIGTERM,
    };
    relay.handle_down(Down::Order(order));
    relay.handle_connected(here);
    let actions: Vec<_> = std::iter::from_fn(|| relay.poll_action()).collect();
    let abandoned = actions.iter().filter_map(|action| match action {
        Action::Abandon(node) => Some(*node),
        _ => None,
    });
    assert_eq!(abandoned.collect::<Vec<_>>(), [elsewhere]);
    let hears = |action: &Action| {
        matches!(action, Action::SendChild(node, Down::Order(Order::Signal { rank: None, signal: SIGTERM }))
            if *node == here)
    };
    assert!(actions.iter().any(hears), "{actions:?}");
}
