//! The declaration of functions that C calls.

/// Declares functions of the library. Their bodies do not panic across the border.
macro_rules! exports {
    ($( fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block )*) => { $(
        #[doc = concat!("`", stringify!($name), "`: see `include/rw_checkpoint.h`.")]
        ///
        /// # Safety
        /// Its pointers are as the header says.
        #[unsafe(no_mangle)]
        #[allow(unused_mut, reason = "objects change, and other arguments do not")]
        pub unsafe extern "C" fn $name($(mut $argument: $type),*) -> c_int {
            $crate::failure::guarded(move || { $body Ok(()) })
        }
    )* };
}
