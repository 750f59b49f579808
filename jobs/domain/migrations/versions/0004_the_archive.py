"""the archive

Revision: 0004
Follows: 0003
"""

import sqlalchemy as sa
from alembic import op


revision = '0004'
down_revision = '0003'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('discards',
    sa.Column('object_key', sa.String(length=400), nullable=False),
    sa.Column('due_ms', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.PrimaryKeyConstraint('object_key', name=op.f('pk_discards'))
    )
    with op.batch_alter_table('discards', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_discards_due_ms'), ['due_ms'], unique=False)

    op.create_table('keeps',
    sa.Column('run_id', sa.String(length=32), nullable=False),
    sa.Column('by', sa.String(length=64), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.Column('created_ms', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.ForeignKeyConstraint(['run_id'], ['runs.id'], name=op.f('fk_keeps_run_id')),
    sa.PrimaryKeyConstraint('run_id', name=op.f('pk_keeps'))
    )
    op.create_table('archives',
    sa.Column('instance_id', sa.String(length=32), nullable=False),
    sa.Column('raw_bytes', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('artifact_bytes', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('manifest_ms', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=True),
    sa.Column('compacted_ms', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=True),
    sa.Column('expired_ms', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=True),
    sa.ForeignKeyConstraint(['instance_id'], ['instances.id'], name=op.f('fk_archives_instance_id')),
    sa.PrimaryKeyConstraint('instance_id', name=op.f('pk_archives'))
    )
    op.create_table('pins',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), autoincrement=True, nullable=False),
    sa.Column('instance_id', sa.String(length=32), nullable=False),
    sa.Column('stream', sa.String(length=32), nullable=False),
    sa.Column('first_line', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('last_line', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('why', sa.String(length=200), nullable=False),
    sa.Column('by', sa.String(length=64), nullable=False),
    sa.Column('created_ms', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.ForeignKeyConstraint(['instance_id'], ['instances.id'], name=op.f('fk_pins_instance_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_pins')),
    sa.UniqueConstraint('instance_id', 'stream', 'first_line', 'last_line', 'why', name=op.f('uq_pins_instance_id_stream_first_line_last_line_why'))
    )
    op.create_table('segments',
    sa.Column('instance_id', sa.String(length=32), nullable=False),
    sa.Column('stream', sa.String(length=32), nullable=False),
    sa.Column('first_seq', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('last_seq', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('mark', sa.String(length=32), nullable=False),
    sa.Column('frame_bytes', sa.JSON(), nullable=False),
    sa.Column('created_ms', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.ForeignKeyConstraint(['instance_id'], ['instances.id'], name=op.f('fk_segments_instance_id')),
    sa.PrimaryKeyConstraint('instance_id', 'stream', 'first_seq', name=op.f('pk_segments'))
    )
    with op.batch_alter_table('proofs', schema=None) as batch_op:
        batch_op.add_column(sa.Column('joules', sa.Double(), nullable=True))
        batch_op.add_column(sa.Column('joules_why', sa.String(length=200), server_default='', nullable=False))


def downgrade() -> None:
    with op.batch_alter_table('proofs', schema=None) as batch_op:
        batch_op.drop_column('joules_why')
        batch_op.drop_column('joules')

    op.drop_table('segments')
    op.drop_table('pins')
    op.drop_table('archives')
    op.drop_table('keeps')
    with op.batch_alter_table('discards', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_discards_due_ms'))

    op.drop_table('discards')
