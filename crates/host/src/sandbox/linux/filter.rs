//! Which system calls a confined program may not make.

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

/// Which sockets a program may make. Pairs of connected ones, which reach nobody, are always possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sockets {
    /// None.
    None,
    /// Those of Unix, which are files.
    Unix,
    /// Those of the internet, in a network that leads nowhere but to a proxy.
    Internet,
    /// Both.
    Both,
    /// Any: the program has the network of this process.
    Any,
}

/// Refused as not permitted, whatever their arguments are. Each either reaches round what Landlock keeps, reaches into other processes,
/// changes the machine, or brings a way to do these that is not looked at here.
const REFUSED: &[c_long] = &[
    // Requests that the kernel carries out without a system call each.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Other processes' memory, descriptors and secrets.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Files by other ways than paths, and other trees of files.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_chroot,
    // Other namespaces.
    libc::SYS_unshare,
    libc::SYS_setns,
    // Programs in the kernel, and what watches it.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_lookup_dcookie,
    libc::SYS_syslog,
    // The machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[c_long] = &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_kexec_file_load];
#[cfg(target_arch = "aarch64")]
const REFUSED_HERE: &[c_long] = &[libc::SYS_kexec_file_load];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const REFUSED_HERE: &[c_long] = &[];

/// The second way into an x86-64 kernel: the same calls under numbers with this bit, and some under numbers of their own.
#[cfg(target_arch = "x86_64")]
const X32: Option<c_long> = Some(0x4000_0000);
#[cfg(not(target_arch = "x86_64"))]
const X32: Option<c_long> = None;
/// `ptrace`, `kexec_load`, `process_vm_readv`, `process_vm_writev` and `ioctl` there.
const X32_OWN: &[c_long] = &[521, 528, 539, 540];
const X32_IOCTL: c_long = 514;

/// Flags of `clone` that make namespaces.
const NAMESPACES: &[i32] = &[
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// `ioctl`s that put text into a terminal's input.
const TYPING: &[u64] = &[0x5412, 0x541C];

/// Two programs for the kernel, to be applied in this order.
pub(super) type Filters = [BpfProgram; 2];

/// Makes the filters. Where a program joins namespaces after they are applied, it may do so later too: it finds none but its own.
pub(super) fn compile(sockets: Sockets, joins: bool) -> Result<Filters, seccompiler::Error> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().chain(REFUSED_HERE).map(|number| (*number, Vec::new())).collect();
    if joins {
        refused.remove(&libc::SYS_setns);
    }
    let flags: Result<Vec<_>, seccompiler::Error> = NAMESPACES
        .iter()
        .map(|flag| {
            let flag = u64::try_from(*flag).unwrap_or_default();
            rule(vec![SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), flag)?])
        })
        .collect();
    refused.insert(libc::SYS_clone, flags?);
    let typing: Result<Vec<_>, seccompiler::Error> =
        TYPING.iter().map(|request| rule(vec![SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *request)?])).collect();
    let typing = typing?;
    refused.insert(libc::SYS_ioctl, typing.clone());
    // The limits of another process: one on its time would end it.
    refused.insert(libc::SYS_prlimit64, vec![rule(vec![SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?])?]);
    if let Some(rules) = sockets.refused()? {
        refused.insert(libc::SYS_socket, rules);
    }
    if let Some(bit) = X32 {
        let again: Vec<_> = refused.iter().map(|(number, rules)| (number | bit, rules.clone())).collect();
        refused.extend(again);
        refused.extend(X32_OWN.iter().map(|number| (number | bit, Vec::new())));
        refused.insert(X32_IOCTL | bit, typing);
    }
    let not_permitted = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let first = SeccompFilter::new(refused, SeccompAction::Allow, not_permitted, arch)?;
    // Its flags stand in memory, where no filter can look. Who is told that there is no such call uses `clone`.
    let mut absent: BTreeMap<i64, Vec<SeccompRule>> = [(libc::SYS_clone3, Vec::new())].into();
    absent.extend(X32.map(|bit| (libc::SYS_clone3 | bit, Vec::new())));
    let second = SeccompFilter::new(absent, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS.unsigned_abs()), arch)?;
    Ok([BpfProgram::try_from(first)?, BpfProgram::try_from(second)?])
}

impl Sockets {
    /// The rules by which a socket is refused; `None` where any is possible.
    fn refused(self) -> Result<Option<Vec<SeccompRule>>, seccompiler::Error> {
        let unix = libc::AF_UNIX;
        let families: &[i32] = match self {
            Self::Any => return Ok(None),
            Self::None => return Ok(Some(Vec::new())),
            Self::Unix => &[unix],
            Self::Internet => &[libc::AF_INET, libc::AF_INET6],
            Self::Both => &[unix, libc::AF_INET, libc::AF_INET6],
        };
        let others: Result<Vec<_>, seccompiler::BackendError> = families
            .iter()
            .map(|family| SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, u64::try_from(*family).unwrap_or_default()))
            .collect();
        Ok(Some(vec![rule(others?)?]))
    }
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, seccompiler::Error> {
    Ok(SeccompRule::new(conditions)?)
}

/// Applies them to this thread, for good.
pub(super) fn apply(filters: &Filters) -> io::Result<()> {
    filters.iter().try_for_each(|filter| apply_filter(filter).map_err(|error| io::Error::other(error.to_string())))
}
