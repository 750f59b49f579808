"""the diagnosis, and what a search rules chunks out by

Revision: 0003
Follows: 0002
"""

import sqlalchemy as sa
from alembic import op


revision = '0003'
down_revision = '0002'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('diagnoses',
    sa.Column('instance_id', sa.String(length=32), nullable=False),
    sa.Column('run_id', sa.String(length=32), nullable=False),
    sa.Column('rules', sa.String(length=16), nullable=False),
    sa.Column('stage', sa.String(length=16), nullable=False),
    sa.Column('outcome', sa.String(length=8), nullable=False),
    sa.Column('cause', sa.String(length=40), nullable=False),
    sa.Column('fingerprint', sa.String(length=64), nullable=False),
    sa.Column('report', sa.JSON(), nullable=False),
    sa.Column('created_ms', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.ForeignKeyConstraint(['instance_id'], ['instances.id'], name=op.f('fk_diagnoses_instance_id_instances')),
    sa.ForeignKeyConstraint(['run_id'], ['runs.id'], name=op.f('fk_diagnoses_run_id_runs')),
    sa.PrimaryKeyConstraint('instance_id', name=op.f('pk_diagnoses'))
    )
    with op.batch_alter_table('diagnoses', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_diagnoses_cause'), ['cause'], unique=False)
        batch_op.create_index(batch_op.f('ix_diagnoses_created_ms'), ['created_ms'], unique=False)
        batch_op.create_index(batch_op.f('ix_diagnoses_fingerprint'), ['fingerprint'], unique=False)
        batch_op.create_index(batch_op.f('ix_diagnoses_run_id'), ['run_id'], unique=False)

    op.create_table('chunk_grams',
    sa.Column('instance_id', sa.String(length=32), nullable=False),
    sa.Column('stream', sa.String(length=32), nullable=False),
    sa.Column('seq', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('warnings', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('errors', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('edge', sa.LargeBinary(), nullable=False),
    sa.Column('bitmap', sa.LargeBinary(), nullable=False),
    sa.ForeignKeyConstraint(['instance_id'], ['instances.id'], name=op.f('fk_chunk_grams_instance_id_instances')),
    sa.PrimaryKeyConstraint('instance_id', 'stream', 'seq', name=op.f('pk_chunk_grams'))
    )


def downgrade() -> None:
    op.drop_table('chunk_grams')
    op.drop_table('diagnoses')
