import type { CodegenConfig } from '@graphql-codegen/cli'

const config: CodegenConfig = {
  schema: 'generated/schema.graphql',
  documents: 'src/typed.ts',
  generates: {
    'generated/gql/': {
      preset: 'client',
      presetConfig: { persistedDocuments: true },
      config: {
        scalars: { DateTime: 'string', Date: 'string', Decimal: 'string', JSON: 'unknown' },
        documentMode: 'string',
        useTypeImports: true,
        enumsAsTypes: true,
      },
    },
  },
}
export default config
