//! From a name to its addresses.

use std::fmt;
use std::io;
use std::net::IpAddr;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

/// Says which addresses a name has. Whoever implements it is believed about names only: each address is checked before it is used.
///
/// ```
/// use std::net::IpAddr;
/// use toolwright_host::net::Resolver;
///
/// #[derive(Debug)]
/// struct Always(IpAddr);
///
/// impl Resolver for Always {
///     fn resolve<'a>(&'a self, _name: &'a str) -> futures_util::future::BoxFuture<'a, std::io::Result<Vec<IpAddr>>> {
///         Box::pin(async { Ok(vec![self.0]) })
///     }
/// }
/// ```
pub trait Resolver: fmt::Debug + Send + Sync {
    /// Every address of `name`, in the order they are to be tried. The name is in lower case, in ASCII, without a dot at its end.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The resolver of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        async move { Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect()) }.boxed()
    }
}
