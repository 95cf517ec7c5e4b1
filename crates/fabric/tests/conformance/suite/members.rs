//! Members prove who they are, and nobody else; those that are gone stay out.

use std::time::Instant;

use bytes::Bytes;
use ropewalk_fabric::{
    Endpoint, EndpointOptions, Event, HandshakeError, Identity, JobKey, MemberKey, PeerDeath, Role,
};

use super::{Fabric, LONG, drive, drive_known, identity};

/// The key of one member with the name of another on it.
fn forged(key: &MemberKey, claimed: Identity) -> MemberKey {
    let encode = |identity: &Identity| postcard::to_allocvec(identity).unwrap();
    let bytes = postcard::to_allocvec(key).unwrap();
    let secret = bytes.strip_prefix(&encode(&key.identity())[..]).unwrap();
    postcard::from_bytes(&[&encode(&claimed)[..], secret].concat()).unwrap()
}

/// Drives both until the first has lost the other; what it saw. Nothing else may happen to either.
fn death(endpoint: &mut Endpoint, other: &mut Endpoint) -> PeerDeath {
    drive(&mut [endpoint, other], |index, event| match event {
        Event::PeerDied { cause, .. } if index == 0 => Some(cause),
        other => panic!("{index}: {other:?}"),
    })
}

/// No rank takes another for an agent or for the launcher, and an agent refuses a rank that claims to be another rank,
/// another incarnation or the launcher, whether it calls or is called.
pub(crate) fn nobody_poses_as_another(fabric: &Fabric) {
    let of_role = |role, number| Identity {
        role,
        ..identity(number, 0)
    };
    let mut member = fabric.endpoint(0);
    let mut agent = fabric.bind(EndpointOptions {
        key: JobKey::from_bytes([2; 32]).key_of(of_role(Role::Agent, 0)),
        ..fabric.options(0)
    });
    let key = fabric.options(1).key;
    let claims = [
        (
            &mut member,
            vec![of_role(Role::Agent, 0), of_role(Role::Launcher, 0)],
        ),
        (
            &mut agent,
            vec![identity(2, 0), identity(1, 1), of_role(Role::Launcher, 0)],
        ),
    ];
    for (target, claims) in claims {
        for claimed in claims {
            let options = EndpointOptions {
                key: forged(&key, claimed),
                ..fabric.options(1)
            };
            let mut impostor = fabric.bind(options);
            assert_eq!(impostor.identity(), claimed);
            impostor
                .send_unexpected(target.address(), 0, Bytes::from_static(b"it is me"))
                .unwrap();
            let cause = death(&mut impostor, target);
            assert!(
                matches!(cause, PeerDeath::Handshake(HandshakeError::Proof)),
                "{cause:?}"
            );
            target
                .send_unexpected(impostor.address(), 0, Bytes::from_static(b"is it you?"))
                .unwrap();
            let cause = death(target, &mut impostor);
            assert!(
                matches!(cause, PeerDeath::Handshake(HandshakeError::Proof)),
                "{cause:?}"
            );
        }
    }
}

/// A member that is fenced is cut off, with what it had sent and nobody has taken yet; when it comes again, and when it
/// is called, it is refused by name, and told so. Its next incarnation is let in.
pub(crate) fn the_fenced_stay_out(fabric: &Fabric) {
    let [mut member, mut late] = fabric.endpoints();
    let (address, late_address) = (member.address().clone(), late.address().clone());
    late.send_unexpected(&address, 1, Bytes::new()).unwrap();
    drive(&mut [&mut member, &mut late], |_, event| {
        matches!(event, Event::Unexpected { tag: 1, .. }).then_some(())
    });
    late.send_unexpected(&address, 2, Bytes::new()).unwrap();
    let begun = Instant::now();
    while member.progress() == 0 {
        late.progress();
        assert!(begun.elapsed() < LONG, "the message does not come");
    }
    member.fence(identity(1, 0));
    let cause = death(&mut member, &mut late);
    assert!(matches!(cause, PeerDeath::Fenced), "{cause:?}");
    death(&mut late, &mut member);

    late.send_unexpected(&address, 3, Bytes::new()).unwrap();
    match death(&mut late, &mut member) {
        PeerDeath::Handshake(HandshakeError::Fenced { identity: named }) => {
            assert_eq!(named, identity(1, 0));
        }
        other => panic!("{other:?}"),
    }
    member.send_unexpected(&late_address, 4, Bytes::new()).unwrap();
    let cause = death(&mut member, &mut late);
    let expected = HandshakeError::Fenced {
        identity: identity(1, 0),
    };
    assert!(
        matches!(&cause, PeerDeath::Handshake(error) if *error == expected),
        "{cause:?}"
    );

    let mut next = fabric.bind(fabric.options_of(1, 1));
    next.send_unexpected(&address, 5, Bytes::new()).unwrap();
    let known = drive_known(&mut [&mut member, &mut next, &mut late], |_, event, from| {
        matches!(event, Event::Unexpected { tag: 5, .. }).then(|| from.cloned())
    });
    assert_eq!(known.unwrap().identity, identity(1, 1));
}
