//! Gives the library a name with a version, under which programs that were linked with it look for it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librw_checkpoint.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
