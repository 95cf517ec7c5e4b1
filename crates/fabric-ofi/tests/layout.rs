//! The types against the headers that are installed.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::{
    fmt::Write,
    mem::{offset_of, size_of},
    path::Path,
    process::Command,
};

use ropewalk_fabric_ofi::sys::*;

/// Where each field stands here, and the same in C.
struct Layouts {
    program: String,
    here: String,
}

impl Layouts {
    fn say(&mut self, what: &str, c: &str, here: i128) {
        writeln!(self.program, "printf(\"{what} %lld\\n\", (long long)({c}));").unwrap();
        writeln!(self.here, "{what} {here}").unwrap();
    }
}

macro_rules! fields {
    ($layouts:ident, $type:ident { $($field:ident $(= $c:literal)?),+ }) => {
        $(
            #[allow(unused_mut, unused_assignments)]
            let mut c = stringify!($field);
            $(c = $c;)?
            $layouts.say(
                concat!(stringify!($type), ".", stringify!($field)),
                &format!("offsetof(struct {}, {c})", stringify!($type)),
                offset_of!($type, $field) as i128,
            );
        )+
    };
}

macro_rules! sizes {
    ($layouts:ident, $($type:ident),+) => {
        $($layouts.say(
            concat!("sizeof ", stringify!($type)),
            concat!("sizeof(struct ", stringify!($type), ")"),
            size_of::<$type>() as i128,
        );)+
    };
}

macro_rules! constants {
    ($layouts:ident, $($name:ident),+) => {
        $($layouts.say(stringify!($name), stringify!($name), i128::from($name as i64));)+
    };
}

/// Every field that we declare stands where libfabric's headers have it, and every constant has their value.
#[test]
fn types_are_those_of_the_headers() {
    if !Path::new("/usr/include/rdma/fi_endpoint.h").exists() {
        eprintln!("skipped: libfabric's headers are not installed");
        return;
    }
    let mut layouts = Layouts {
        program: String::new(),
        here: String::new(),
    };
    fields!(layouts, fid { fclass, context, ops });
    fields!(
        layouts,
        fi_ops {
            size,
            close,
            bind,
            control
        }
    );
    fields!(
        layouts,
        fi_info {
            next,
            caps,
            mode,
            addr_format,
            src_addrlen,
            dest_addrlen,
            src_addr,
            dest_addr,
            handle,
            tx_attr,
            rx_attr,
            ep_attr,
            domain_attr,
            fabric_attr
        }
    );
    fields!(
        layouts,
        fi_tx_attr {
            caps,
            mode,
            op_flags,
            msg_order,
            comp_order,
            inject_size,
            size
        }
    );
    fields!(
        layouts,
        fi_rx_attr {
            caps,
            mode,
            op_flags,
            msg_order,
            comp_order,
            total_buffered_recv,
            size
        }
    );
    fields!(layouts, fi_ep_attr { type_ = "type", protocol, protocol_version, max_msg_size });
    fields!(
        layouts,
        fi_domain_attr {
            domain,
            name,
            threading,
            control_progress,
            data_progress,
            resource_mgmt,
            av_type,
            mr_mode
        }
    );
    fields!(
        layouts,
        fi_fabric_attr {
            fabric,
            name,
            prov_name,
            prov_version,
            api_version
        }
    );
    fields!(layouts, fid_fabric { fid, ops });
    fields!(
        layouts,
        fi_ops_fabric {
            size,
            domain,
            trywait
        }
    );
    fields!(layouts, fid_domain { fid, ops, mr });
    fields!(
        layouts,
        fi_ops_domain {
            size,
            av_open,
            cq_open,
            endpoint
        }
    );
    fields!(layouts, fi_ops_mr { size, reg });
    fields!(layouts, fid_mr { fid, mem_desc, key });
    fields!(
        layouts,
        fi_av_attr { type_ = "type", rx_ctx_bits, count, ep_per_node, name, map_addr, flags }
    );
    fields!(layouts, fid_av { fid, ops });
    fields!(layouts, fi_ops_av { size, insert, remove });
    fields!(
        layouts,
        fi_cq_attr {
            size,
            flags,
            format,
            wait_obj,
            signaling_vector,
            wait_cond,
            wait_set
        }
    );
    fields!(
        layouts,
        fi_cq_msg_entry {
            op_context,
            flags,
            len
        }
    );
    fields!(
        layouts,
        fi_cq_err_entry {
            op_context,
            flags,
            len,
            buf,
            data,
            tag,
            olen,
            err,
            prov_errno,
            err_data,
            err_data_size
        }
    );
    fields!(layouts, fid_cq { fid, ops });
    fields!(layouts, fi_ops_cq { size, read, readerr });
    fields!(layouts, fid_ep { fid, ops, cm, msg });
    fields!(layouts, fi_ops_ep { size, cancel });
    fields!(layouts, fi_ops_cm { size, getname });
    fields!(layouts, fi_ops_msg { size, recv, send });
    // Those that we allocate.
    sizes!(
        layouts,
        fi_context2,
        fi_av_attr,
        fi_cq_attr,
        fi_cq_msg_entry,
        fi_cq_err_entry
    );
    constants!(
        layouts,
        FI_ADDR_UNSPEC,
        FI_MSG,
        FI_RECV,
        FI_SEND,
        FI_TRANSMIT,
        FI_SOURCE,
        FI_SOCKADDR,
        FI_SOCKADDR_IN,
        FI_SOCKADDR_IN6,
        FI_CONTEXT,
        FI_CONTEXT2,
        FI_ORDER_SAS,
        FI_MR_LOCAL,
        FI_MR_VIRT_ADDR,
        FI_MR_ALLOCATED,
        FI_MR_PROV_KEY,
        FI_EP_RDM,
        FI_THREAD_DOMAIN,
        FI_RM_ENABLED,
        FI_AV_UNSPEC,
        FI_CQ_FORMAT_MSG,
        FI_WAIT_NONE,
        FI_WAIT_FD,
        FI_GETWAIT,
        FI_ENABLE,
        FI_EAGAIN,
        FI_EAVAIL
    );
    assert_eq!(layouts.here, in_c(&layouts.program));
}

fn in_c(body: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    let text = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <rdma/fabric.h>\n#include <rdma/fi_cm.h>\n\
         #include <rdma/fi_domain.h>\n#include <rdma/fi_endpoint.h>\n#include <rdma/fi_errno.h>\n\
         int main(void) {{\n{body}return 0;\n}}\n"
    );
    std::fs::write(&source, text).unwrap();
    let compiled = Command::new("cc").arg(&source).arg("-o").arg(&program).status();
    assert!(compiled.unwrap().success());
    String::from_utf8(Command::new(program).output().unwrap().stdout).unwrap()
}

/// Where libfabric is installed it is loaded, with a version that we know; elsewhere the reason is named.
#[test]
fn libfabric_is_loaded_or_named() {
    match Library::load() {
        // SAFETY: it takes nothing and returns a number.
        Ok(library) => assert!(unsafe { (library.version)() } >= fi_version(1, 9)),
        Err(error) => {
            assert!(error.to_string().contains("libfabric"));
            eprintln!("skipped: {error}");
        }
    }
}
