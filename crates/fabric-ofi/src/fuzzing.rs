//! Entry points for fuzz targets: each takes any bytes, and panics only if something is wrong with the parser.

use ropewalk_fabric::{
    AccessError, Address, Body, FrameError, Identity, JobKey, Limits, OperationId, Role,
    provider::{Introduction, MessageKind, Receiver, RegionTable, Transferred},
};
use ropewalk_names::{Incarnation, JobId, Rank};

use crate::messaging::{Association, Envelope, EnvelopeKind};

/// Takes messages from a caller over a transport without connections: the first byte of each piece says how long
/// the piece is and whether its envelope is made to fit, so that its content is looked at.
pub fn association(mut bytes: &[u8]) {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(0),
        incarnation: Incarnation(0),
    };
    let Ok(address) = "ofi://sockets/00".parse::<Address>() else {
        return;
    };
    let key = JobKey::from_bytes([0; 32]).key_of(identity);
    let introduction = Introduction::new(JobId([0; 16]), key, address, 0);
    let mut nobody = Nobody(RegionTable::new([0; 32]));
    let mut side = Association::answer(introduction, 1, 2, [0; 32], &Limits::default());
    let mut sequence = 0;
    while let Some((&choice, rest)) = bytes.split_first() {
        let (piece, rest) = rest.split_at(rest.len().min(usize::from(choice)));
        bytes = rest;
        let fitting = Envelope {
            association: 2,
            sequence,
            acknowledged: 0,
            kind: EnvelopeKind::Data,
        };
        let (envelope, content) = match Envelope::decode(piece) {
            Ok(decoded) => decoded,
            Err(_) if choice % 2 == 0 => (fitting, piece),
            Err(_) => continue,
        };
        if side.handle(&envelope, content, &mut nobody).is_err() {
            return;
        }
        sequence += 1;
    }
}

/// Takes nothing from a stranger.
struct Nobody(RegionTable);

impl Receiver for Nobody {
    fn regions(&mut self) -> &mut RegionTable {
        &mut self.0
    }

    fn handle_message(&mut self, _: MessageKind, _: u64, _: Body) -> Result<(), FrameError> {
        panic!("a stranger was believed");
    }

    fn handle_transferred(&mut self, _: OperationId, _: Result<Transferred, AccessError>) {
        panic!("a stranger was believed");
    }
}
