"""Which dialect a connection's first message belongs to. A new ZeroMQ dialect adds one line to `OPENERS`."""

from collections.abc import Callable
from typing import Final, NamedTuple

from polydomo.dialects.dcp.messages import PROTOCOL as DCP_PROTOCOL
from polydomo.dialects.dcp.session import DIALECT as DCP
from polydomo.dialects.dcp.session import DcpSession, resume_dcp
from polydomo.dialects.mdp.messages import CLIENT_FORMS
from polydomo.dialects.mdp.messages import HEADERS as MDP_HEADERS
from polydomo.dialects.mdp.session import MdpSession, resume_mdp
from polydomo.dialects.nfp.messages import HEADERS as NFP_HEADERS
from polydomo.dialects.nfp.messages import NORFAB
from polydomo.dialects.nfp.session import NfpSession, resume_norfab
from polydomo.dialects.session import Context, PeerConnection, Session, SessionFactory
from polydomo.dialects.wmp.messages import PROTOCOL as WMP_PROTOCOL
from polydomo.dialects.wmp.session import WmpSession


def _open_mdp(context: Context, link: PeerConnection) -> Session:
    return MdpSession(context, link)


def _open_dcp(context: Context, link: PeerConnection) -> Session:
    return DcpSession(context, link)


def _open_nfp(context: Context, link: PeerConnection) -> Session:
    return NfpSession(context, link)


def _open_wmp(context: Context, link: PeerConnection) -> Session:
    return WmpSession(context, link)


OPENERS: Final[dict[bytes, SessionFactory]] = {
    **dict.fromkeys(MDP_HEADERS, _open_mdp),
    DCP_PROTOCOL: _open_dcp,
    **dict.fromkeys(NFP_HEADERS, _open_nfp),
    WMP_PROTOCOL: _open_wmp,
}


class Resumption(NamedTuple):
    """How clients of one dialect go on, under their names, with what they had under way before the broker was
    restarted. They say nothing until they are told something."""

    open: Callable[
        [Context, PeerConnection, str, str], Session
    ]  # with the dialect, and its form (`Client.form`)
    asks: bool = False  # they can ask for a result by its id; others are told what they may have missed, once


RESUMED: Final[dict[str, Resumption]] = {
    NORFAB.name: Resumption(resume_norfab, asks=True),
    **{form.name: Resumption(resume_mdp) for form in CLIENT_FORMS},
    DCP: Resumption(resume_dcp),
}
