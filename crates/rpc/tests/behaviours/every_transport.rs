//! Over what tests are run.

/// Makes each of these functions a test over every provider, once with engines that are looked at all the time and
/// once with engines that sleep while there is nothing to do. Those behind `any_driver` are run once, because their
/// engines are driven by threads or tasks of their own, or by `Engine::wait`, which does both.
macro_rules! on_every_transport {
    (any_driver: $($name:ident,)+) => {
        crate::on_every_transport! { any_driver_without_ofi_shm: $($name,)+ }
        #[cfg(feature = "ofi")]
        mod over_ofi_shm { crate::each_over!(ofi_shm, Spinning, $($name,)+); }
    };
    (any_driver_without_ofi_shm: $($name:ident,)+) => {
        mod over_tcp { crate::each_over!(tcp, Spinning, $($name,)+); }
        mod over_shm { crate::each_over!(shm, Spinning, $($name,)+); }
        mod over_either { crate::each_over!(either, Spinning, $($name,)+); }
        #[cfg(feature = "ofi")]
        mod over_ofi_sockets { crate::each_over!(ofi_sockets, Spinning, $($name,)+); }
        #[cfg(feature = "ofi")]
        mod over_ofi_tcp { crate::each_over!(ofi_tcp, Spinning, $($name,)+); }
    };
    (without_ofi: $($name:ident,)+) => {
        mod over_tcp { crate::spinning_and_sleeping!(tcp, $($name,)+); }
        mod over_shm { crate::spinning_and_sleeping!(shm, $($name,)+); }
        mod over_either { crate::spinning_and_sleeping!(either, $($name,)+); }
    };
    (without_ofi_shm: $($name:ident,)+) => {
        crate::on_every_transport! { without_ofi: $($name,)+ }
        #[cfg(feature = "ofi")]
        mod over_ofi_sockets { crate::spinning_and_sleeping!(ofi_sockets, $($name,)+); }
        #[cfg(feature = "ofi")]
        mod over_ofi_tcp { crate::spinning_and_sleeping!(ofi_tcp, $($name,)+); }
    };
    ($($name:ident,)+) => {
        crate::on_every_transport! { without_ofi_shm: $($name,)+ }
        #[cfg(feature = "ofi")]
        mod over_ofi_shm { crate::spinning_and_sleeping!(ofi_shm, $($name,)+); }
    };
}
pub(crate) use on_every_transport;

/// Makes each of these functions two tests over one provider.
macro_rules! spinning_and_sleeping {
    ($over:ident, $($name:ident,)+) => {
        mod spinning {
            $(#[test] fn $name() { crate::settings::$over(crate::Waiting::Spinning, super::super::$name); })+
        }
        mod sleeping {
            $(#[test] fn $name() { crate::settings::$over(crate::Waiting::Sleeping, super::super::$name); })+
        }
    };
}
pub(crate) use spinning_and_sleeping;

/// Makes each of these functions a test over one provider.
macro_rules! each_over {
    ($over:ident, $waiting:ident, $($name:ident,)+) => {
        $(#[test] fn $name() { crate::settings::$over(crate::Waiting::$waiting, super::$name); })+
    };
}
pub(crate) use each_over;
