//! A network that leads nowhere but to a proxy.
//!
//! A socket belongs to the network that whoever made it was in. So a listener is made in a new network and given to this process, which serves it
//! from where it is: the one thing there is in that network is a way out that knows what may pass.
//!
//! Root makes the network on a thread. Everybody else has to be root of a namespace of users first, which a process with threads can't enter: there a
//! child makes both between fork and exec, sends the listener back and ends, and each program joins them between its own fork and exec.

use std::ffi::CStr;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::sched::{CloneFlags, setns, unshare};
use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, recvmsg, send, sendmsg, socket_with, socketpair,
};

use super::support::tried;
use crate::process::Joins;

/// A network of its own.
#[derive(Debug)]
pub(super) enum Network {
    /// One that a thread moves into.
    Entered(File),
    /// One that a program joins once it is a process.
    Joined(Arc<Joins>),
}

impl Network {
    /// Makes one, with its loopback interface up and somebody to be called there.
    pub(super) fn new() -> Result<(Self, TcpListener), String> {
        let made = tried(by_thread).or_else(|as_root| {
            by_child()
                .map_err(|as_user| format!("no network can be made: neither as root ({as_root}) nor in a namespace of users ({as_user})"))
        });
        let (network, listener) = made?;
        listener.set_nonblocking(true).map_err(|error| error.to_string())?;
        Ok((network, listener))
    }

    /// Moves this thread into it, where that is how one gets there.
    pub(super) fn enter(&self) -> std::io::Result<()> {
        match self {
            Self::Entered(place) => setns(place.as_fd(), CloneFlags::CLONE_NEWNET).map_err(std::io::Error::from),
            Self::Joined(_) => Ok(()),
        }
    }

    /// What a program joins by itself.
    pub(super) fn joins(&self) -> Option<Arc<Joins>> {
        match self {
            Self::Entered(_) => None,
            Self::Joined(joins) => Some(Arc::clone(joins)),
        }
    }
}

/// On this thread, which then ends.
fn by_thread() -> Result<(Network, TcpListener), String> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| error.to_string())?;
    let listener = listen(&up()).map_err(|error| error.to_string())?;
    let place = File::open("/proc/thread-self/ns/net").map_err(|error| error.to_string())?;
    Ok((Network::Entered(place), listener.into()))
}

/// In a child, as root of a namespace of users in which this user is the only one.
fn by_child() -> Result<(Network, TcpListener), String> {
    let said = |error: rustix::io::Errno| error.to_string();
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).map_err(said)?;
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    // All that the child needs is made here: between fork and exec it may not allocate.
    let plan = Plan { users: format!("{user} {user} 1\n"), groups: format!("{group} {group} 1\n"), up: up(), back: theirs };
    #[allow(unsafe_code, reason = "a namespace of users is made between fork and exec or not at all")]
    // SAFETY: carrying out the plan is system calls with what is in it, and errors out of numbers: nothing is allocated, nothing locked.
    let child = unsafe { crate::process::waiting_child(move || plan.carry_out()) };
    let mut child = child.map_err(|error| error.to_string())?;
    let id = child.id();
    let open = |what: &str| File::open(format!("/proc/{id}/ns/{what}")).map_err(|error| error.to_string());
    let found = receive(ours.as_fd()).and_then(|listener| Ok((open("user")?, open("net")?, listener)));
    // What is open keeps the namespaces; the child only had to be there until now.
    drop(child.stdin.take());
    let _ = child.wait();
    let (user, network, listener) = found?;
    Ok((Network::Joined(Arc::new(Joins { user, network })), listener.into()))
}

/// What a child does between fork and exec. It makes system calls and nothing else.
struct Plan {
    users: String,
    groups: String,
    up: [u8; MESSAGE],
    back: OwnedFd,
}

impl Plan {
    fn carry_out(&self) -> std::io::Result<()> {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).map_err(|error| std::io::Error::from_raw_os_error(error as i32))?;
        // Groups can't be mapped by a user who could still change them.
        write(c"/proc/self/setgroups", b"deny")?;
        write(c"/proc/self/uid_map", self.users.as_bytes())?;
        write(c"/proc/self/gid_map", self.groups.as_bytes())?;
        let listener = listen(&self.up)?;
        let descriptors = [listener.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(&self.back, &[IoSlice::new(b"x")], &mut control, SendFlags::empty())?;
        Ok(())
    }
}

fn write(file: &CStr, text: &[u8]) -> rustix::io::Result<()> {
    let file = rustix::fs::open(file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text).map(|_| ())
}

/// The descriptor that a child sent.
fn receive(from: BorrowedFd<'_>) -> Result<OwnedFd, String> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut control, flags).map_err(|error| error.to_string())?;
    let descriptors = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    descriptors.ok_or_else(|| "the child that made it sent nothing".to_owned())
}

/// Somebody to be called in the network that this thread is in. System calls only.
fn listen(up: &[u8; MESSAGE]) -> rustix::io::Result<OwnedFd> {
    loopback_up(up)?;
    let listener = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    rustix::net::listen(&listener, 128)?;
    Ok(listener)
}

/// How long the message is that brings an interface up.
const MESSAGE: usize = 32;

/// Asks the kernel to bring up the interface that every network begins with, which is the first.
fn up() -> [u8; MESSAGE] {
    const NEW_LINK: u16 = 16;
    const REQUEST_WITH_ANSWER: u16 = 1 | 4;
    const UP: u32 = 1;
    let mut message = Vec::with_capacity(MESSAGE);
    // The head of every message: length, what it is, flags, number, sender.
    message.extend(u32::try_from(MESSAGE).unwrap_or_default().to_ne_bytes());
    message.extend(NEW_LINK.to_ne_bytes());
    message.extend(REQUEST_WITH_ANSWER.to_ne_bytes());
    message.extend([1_u32, 0].map(u32::to_ne_bytes).concat());
    // Which interface: family and kind are left open; its index, its flags, which of them are meant.
    message.extend(0_u32.to_ne_bytes());
    message.extend(1_i32.to_ne_bytes());
    message.extend([UP, UP].map(u32::to_ne_bytes).concat());
    message.try_into().unwrap_or([0; MESSAGE])
}

fn loopback_up(message: &[u8; MESSAGE]) -> rustix::io::Result<()> {
    // Of the kinds of netlink, the one about interfaces is number 0, which is what `None` says.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, message, SendFlags::empty())?;
    let mut answer = [0_u8; 256];
    let (read, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    // After the head of the answer stands an error's number, negative, or zero.
    let code = answer.get(..read).and_then(|answer| answer.get(16..20)).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        Some(error) => Err(rustix::io::Errno::from_raw_os_error(error.saturating_neg())),
        None => Err(rustix::io::Errno::BADMSG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_says_what_it_is() {
        let message = up();
        assert_eq!(message[..4], 32_u32.to_ne_bytes());
        assert_eq!(message[20..24], 1_i32.to_ne_bytes());
    }

    // Whoever may not make namespaces of users here is told so; who may, gets one, also as root.
    #[test]
    fn a_child_makes_a_network_for_who_is_not_root() {
        match by_child() {
            Ok((Network::Joined(_), listener)) => assert!(listener.local_addr().unwrap().ip().is_loopback()),
            Ok((other, _)) => panic!("{other:?}"),
            Err(why) => assert!(!why.is_empty()),
        }
    }
}
