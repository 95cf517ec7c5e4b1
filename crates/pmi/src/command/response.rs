//! The responses of a server.

use bstr::{BStr, BString};

use super::{DecodeError, EncodeError, attribute::Attribute, commands};
use crate::{
    Form, Message,
    wire::{Attributes, MessageWriter},
};

commands! {
    /// A response of a server. `rc` is 0 when all went well; in lines it may be absent, which means 0.
    enum Response, last value Some("value"), {
        /// To [`Request::GetAppnum`](crate::Request::GetAppnum).
        Appnum {
            /// The index of the MPMD segment.
            appnum: i32,
        } => { Line "appnum" [appnum = "appnum"] }
        /// To [`Request::Fence`](crate::Request::Fence), when all are there.
        Fence {
            /// The word that the group was asked for with (PMI 1.2).
            tag: Option<BString>,
            /// Not 0 if the fence can never complete.
            rc: Option<i32>,
            /// Why not.
            message: Option<BString>,
        } => {
            Line "barrier_out" [tag = "tag", rc = "rc", message = "msg"],
            Frame "kvs-fence-response" [rc = "rc", message = "errmsg"]
        }
        /// To [`Request::Finalize`](crate::Request::Finalize).
        Finalize {
            /// Not 0 if something went wrong.
            rc: Option<i32>,
        } => { Line "finalize_ack" [rc = "rc"], Frame "finalize-response" [rc = "rc"] }
        /// To [`Request::FullInit`](crate::Request::FullInit).
        FullInit {
            /// The major version the server speaks.
            version: Option<u32>,
            /// The minor version.
            subversion: Option<u32>,
            /// The client's rank.
            rank: Option<u32>,
            /// How many processes the group has.
            size: Option<u32>,
            /// The index of the MPMD segment.
            appnum: Option<i32>,
            /// The job that spawned this one, if any.
            spawner: Option<BString>,
            /// True if a debugger wants to be waited for.
            debugged: Option<bool>,
            /// True if the client shall say what it does.
            verbose: Option<bool>,
            /// Not 0 if the client cannot be served.
            rc: Option<i32>,
            /// Why not.
            message: Option<BString>,
        } => {
            Frame "fullinit-response" [
                version = "pmi-version", subversion = "pmi-subversion", rank = "rank", size = "size",
                appnum = "appnum", spawner = "spawner-jobid", debugged = "debugged", verbose = "pmiverbose",
                rc = "rc", message = "errmsg"
            ]
        }
        /// To [`Request::Get`](crate::Request::Get).
        Get {
            /// True if there is such a key.
            found: Option<bool>,
            /// The value.
            value: Option<BString>,
            /// Not 0 if there is none (lines), or something went wrong.
            rc: Option<i32>,
            /// In words.
            message: Option<BString>,
        } => {
            Line "get_result" [rc = "rc", message = "msg", found = "found", value = "value"],
            Frame "kvs-get-response" [found = "found", value = "value", rc = "rc", message = "errmsg"]
        }
        /// To [`Request::InitAck`](crate::Request::InitAck), followed by [`Set`](Self::Set).
        InitAck {} => { Line "initack" [] }
        /// To [`Request::JobConnect`](crate::Request::JobConnect).
        JobConnect {
            /// True if the client itself has to copy the other key-value space. No client can.
            kvscopy: Option<bool>,
            /// Not 0 if there is no such job.
            rc: Option<i32>,
            /// Why not.
            message: Option<BString>,
        } => { Frame "job-connect-response" [kvscopy = "kvscopy", rc = "rc", message = "errmsg"] }
        /// To [`Request::JobDisconnect`](crate::Request::JobDisconnect).
        JobDisconnect {
            /// Not 0 if there was no connection.
            rc: Option<i32>,
            /// Why not.
            message: Option<BString>,
        } => { Frame "job-disconnect-response" [rc = "rc", message = "errmsg"] }
        /// To [`Request::GetJobAttribute`](crate::Request::GetJobAttribute).
        JobAttribute {
            /// True if there is such an attribute.
            found: Option<bool>,
            /// Its value.
            value: Option<BString>,
            /// Not 0 if something went wrong.
            rc: Option<i32>,
        } => { Frame "info-getjobattr-response" [found = "found", value = "value", rc = "rc"] }
        /// To [`Request::LookupName`](crate::Request::LookupName).
        LookupName {
            /// The port.
            port: Option<BString>,
            /// The port again: clients differ in where they look.
            value: Option<BString>,
            /// `ok`, or anything else for failure.
            info: Option<BString>,
            /// True if there is such a name.
            found: Option<bool>,
            /// Not 0 if there is no such name.
            rc: Option<i32>,
            /// In words.
            message: Option<BString>,
        } => {
            Line "lookup_result" [port = "port", info = "info", rc = "rc", message = "msg"],
            Frame "name-lookup-response" [
                port = "port", value = "value", found = "found", rc = "rc", message = "errmsg"
            ]
        }
        /// To [`Request::GetMaxes`](crate::Request::GetMaxes): sizes in bytes.
        Maxes {
            /// Of a key-value space's name.
            kvsname_max: u32,
            /// Of a key.
            key_max: u32,
            /// Of a value.
            value_max: u32,
        } => {
            Line "maxes" [kvsname_max = "kvsname_max", key_max = "keylen_max", value_max = "vallen_max"]
        }
        /// To [`Request::GetMyKvsname`](crate::Request::GetMyKvsname).
        MyKvsname {
            /// The name.
            kvsname: BString,
            /// Not 0 if something went wrong.
            rc: Option<i32>,
        } => {
            Line "my_kvsname" [kvsname = "kvsname", rc = "rc"],
            Frame "job-getid-response" [kvsname = "jobid", rc = "rc"]
        }
        /// To [`Request::GetNodeAttribute`](crate::Request::GetNodeAttribute).
        NodeAttribute {
            /// True if there is such an attribute.
            found: Option<bool>,
            /// Its value.
            value: Option<BString>,
            /// Not 0 if something went wrong.
            rc: Option<i32>,
            /// Why.
            message: Option<BString>,
        } => {
            Frame "info-getnodeattr-response" [
                found = "found", value = "value", rc = "rc", message = "errmsg"
            ]
        }
        /// To [`Request::PublishName`](crate::Request::PublishName).
        PublishName {
            /// `ok`, or anything else for failure.
            info: Option<BString>,
            /// Not 0 if the name is taken.
            rc: Option<i32>,
            /// In words.
            message: Option<BString>,
        } => {
            Line "publish_result" [info = "info", rc = "rc", message = "msg"],
            Frame "name-publish-response" [rc = "rc", message = "errmsg"]
        }
        /// To [`Request::Put`](crate::Request::Put).
        Put {
            /// Not 0 if the value was not taken.
            rc: Option<i32>,
            /// In words.
            message: Option<BString>,
        } => {
            Line "put_result" [rc = "rc", message = "msg"],
            Frame "kvs-put-response" [rc = "rc", message = "errmsg"]
        }
        /// To [`Request::PutNodeAttribute`](crate::Request::PutNodeAttribute).
        PutNodeAttribute {
            /// Not 0 if the value was not taken.
            rc: Option<i32>,
            /// Why not.
            message: Option<BString>,
        } => { Frame "info-putnodeattr-response" [rc = "rc", message = "errmsg"] }
        /// To [`Request::Init`](crate::Request::Init).
        Init {
            /// The major version the server speaks.
            version: u32,
            /// The minor version.
            subversion: u32,
            /// Not 0 if the versions do not fit together.
            rc: Option<i32>,
            /// `whole` if the client asked for it: values with spaces and `;` are kept.
            values: Option<BString>,
        } => {
            Line "response_to_init" [
                version = "pmi_version", subversion = "pmi_subversion", rc = "rc",
                values = "values"
            ]
        }
        /// Follows [`InitAck`](Self::InitAck): one of them in each line.
        Set {
            /// How many processes the group has.
            size: Option<u32>,
            /// The client's rank.
            rank: Option<u32>,
            /// How much the client shall say about what it does.
            debug: Option<u32>,
        } => { Line "set" [size = "size", rank = "rank", debug = "debug"] }
        /// The process manager greets a process that nobody started.
        Singinit {
            /// How the process shall prove who it is: `none`.
            authentication: Option<BString>,
        } => { Line "singinit" [authentication = "authtype"] }
        /// To [`Request::Singinit`](crate::Request::Singinit).
        SinginitInfo {
            /// `yes` if the versions fit together, or else `no`.
            version_fits: BString,
            /// `yes` if three connections for standard input and output follow, or else `no`.
            stdio: Option<BString>,
            /// The group's key-value space.
            kvsname: Option<BString>,
        } => {
            Line "singinit_info" [version_fits = "versionok", stdio = "stdio", kvsname = "kvsname"]
        }
        /// To [`Request::Spawn`](crate::Request::Spawn) or the last
        /// [`Request::SpawnBlock`](crate::Request::SpawnBlock).
        Spawn {
            /// Not 0 if nothing was started.
            rc: Option<i32>,
            /// Why not.
            message: Option<BString>,
            /// The error code of each process, 0 if it was started, with commas between them (lines only).
            errcodes: Option<BString>,
            /// The new group's key-value space.
            job: Option<BString>,
            /// How many of `errcodes` follow (frames only); 0 if all were started.
            error_count: Option<u32>,
        } => {
            Line "spawn_result" [rc = "rc", message = "msg", errcodes = "errcodes"],
            Frame "spawn-response" [rc = "rc", message = "errmsg", job = "jobid", error_count = "nerrs"]
        }
        /// To [`Request::GetUniverseSize`](crate::Request::GetUniverseSize).
        UniverseSize {
            /// How many processes there could be, -1 if nobody knows.
            size: i32,
        } => { Line "universe_size" [size = "size"] }
        /// To [`Request::UnpublishName`](crate::Request::UnpublishName).
        UnpublishName {
            /// `ok`, or anything else for failure.
            info: Option<BString>,
            /// Not 0 if there is no such name.
            rc: Option<i32>,
            /// In words.
            message: Option<BString>,
        } => {
            Line "unpublish_result" [info = "info", rc = "rc", message = "msg"],
            Frame "name-unpublish-response" [rc = "rc", message = "errmsg"]
        }
    }
}
