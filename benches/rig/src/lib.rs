//! Several hosts on this machine: network namespaces behind a bridge, whose rates can be changed and whose links can be
//! cut. It takes root and iproute2.

mod control_group;
mod flow;
mod namespace;
mod network;
mod relay;
mod weather;

pub use self::{
    control_group::ControlGroup,
    flow::{Flow, goodput, messages_a_second},
    namespace::within,
    network::{Direction, Network},
    relay::Relay,
    weather::{Count, Weather, carry, reset},
};
