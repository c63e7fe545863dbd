"""Which dialect a connection's first message belongs to. A new ZeroMQ dialect adds one line to `OPENERS`."""

from typing import Final

from polydomo.dialects.dcp.broker import DcpSession
from polydomo.dialects.dcp.messages import PROTOCOL as DCP_PROTOCOL
from polydomo.dialects.mdp.broker import MdpSession
from polydomo.dialects.mdp.messages import HEADERS as MDP_HEADERS
from polydomo.dialects.nfp.broker import NfpSession, resume_norfab
from polydomo.dialects.nfp.messages import HEADERS as NFP_HEADERS
from polydomo.dialects.nfp.messages import NORFAB
from polydomo.dialects.session import Context, Link, Opener, Session
from polydomo.dialects.wmp.broker import WmpSession
from polydomo.dialects.wmp.messages import PROTOCOL as WMP_PROTOCOL


def _open_mdp(context: Context, link: Link) -> Session:
    return MdpSession(context, link)


def _open_dcp(context: Context, link: Link) -> Session:
    return DcpSession(context, link)


def _open_nfp(context: Context, link: Link) -> Session:
    return NfpSession(context, link)


def _open_wmp(context: Context, link: Link) -> Session:
    return WmpSession(context, link)


OPENERS: Final[dict[bytes, Opener]] = {
    **dict.fromkeys(MDP_HEADERS, _open_mdp),
    DCP_PROTOCOL: _open_dcp,
    **dict.fromkeys(NFP_HEADERS, _open_nfp),
    WMP_PROTOCOL: _open_wmp,
}

# Dialects whose clients go on, under their names, with what they had under way before the broker was restarted, and
# say nothing until they are told something.
RESUMED: Final[dict[str, Opener]] = {NORFAB.name: resume_norfab}
