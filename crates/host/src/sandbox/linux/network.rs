//! A network that leads nowhere but to a proxy.
//!
//! A socket belongs to the network that the thread which made it was in. So a thread goes into a new network, makes a listener there, and gives
//! it to this process, which serves it from where it is: the one thing there is in that network is a way out that knows what may pass.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd as _;

use nix::sched::{CloneFlags, setns, unshare};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

use super::support::tried;

/// A network of its own, and a listener in it.
#[derive(Debug)]
pub(super) struct Network {
    place: File,
}

impl Network {
    /// Makes one, with its loopback interface up and somebody to be called there.
    pub(super) fn new() -> Result<(Self, TcpListener), String> {
        tried(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .map_err(|error| format!("no network can be made ({error}); that takes root, or CAP_SYS_ADMIN"))?;
            loopback_up().map_err(|error| format!("its loopback can't be used: {error}"))?;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
            listener.set_nonblocking(true).map_err(|error| error.to_string())?;
            let place = File::open("/proc/thread-self/ns/net").map_err(|error| error.to_string())?;
            Ok((Self { place }, listener))
        })
    }

    /// Moves this thread into it.
    pub(super) fn enter(&self) -> std::io::Result<()> {
        setns(self.place.as_fd(), CloneFlags::CLONE_NEWNET).map_err(std::io::Error::from)
    }
}

/// Asks the kernel to bring up the interface that every network begins with, which is the first.
fn loopback_up() -> std::io::Result<()> {
    const LENGTH: u32 = 32;
    const NEW_LINK: u16 = 16;
    const REQUEST_WITH_ANSWER: u16 = 1 | 4;
    const UP: u32 = 1;
    let mut message = Vec::with_capacity(LENGTH as usize);
    // The head of every message: length, what it is, flags, number, sender.
    message.extend(LENGTH.to_ne_bytes());
    message.extend(NEW_LINK.to_ne_bytes());
    message.extend(REQUEST_WITH_ANSWER.to_ne_bytes());
    message.extend([1_u32, 0].map(u32::to_ne_bytes).concat());
    // Which interface: family and kind are left open; its index, its flags, which of them are meant.
    message.extend(0_u32.to_ne_bytes());
    message.extend(1_i32.to_ne_bytes());
    message.extend([UP, UP].map(u32::to_ne_bytes).concat());
    // Of the kinds of netlink, the one about interfaces is number 0, which is what `None` says.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, &message, SendFlags::empty())?;
    let mut answer = [0_u8; 256];
    let (read, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    // After the head of the answer stands an error's number, negative, or zero.
    let code = answer.get(..read).and_then(|answer| answer.get(16..20)).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        Some(error) => Err(std::io::Error::from_raw_os_error(error.saturating_neg())),
        None => Err(std::io::Error::other("the kernel's answer is too short")),
    }
}
